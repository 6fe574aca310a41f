"""Retrievers for LangChain and LlamaIndex."""
