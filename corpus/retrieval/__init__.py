"""How a query becomes a ranking: candidates, fusion, near-duplicates, reranking, and learning to fuse."""
