"""How new weights come to what samples: in this process, as adapters for vLLM servers, or through TRL."""
