"""Derived indexes on distributed Chroma or Chroma Cloud. The record stays on this machine and stays the truth.

Two remote collections stand for one collection of ours:

- *vectors*, keyed by vector id, holds each distinct vector once and nothing else (`dense`).
- *passages*, keyed by chunk id, holds BM25 sparse vectors, the text for regular expressions, and each chunk's vector,
  so that one call can rank by both and fuse on the server (`passages`).

They are two because they are keyed differently (equal vectors are indexed once), because a change of the embedder and
a change of the analyzer rebuild different ones, and because Chroma counts concurrent reads by collection. What a
server can do is tried out (`features`), never concluded from its version.
"""
