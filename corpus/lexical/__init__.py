"""BM25 over chunks: a derived index, rebuilt from the record whenever it is in doubt."""
