"""Tables of the record."""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 1
APPLICATION_ID = 0x54485253  # "THRS"

# Why it is shaped like this:
# - chunks.id is AUTOINCREMENT: an id is never used twice, so a stale entry of a derived index can only name a dead
#   chunk, never the wrong one. (A record that lost its newest operations does give their ids out again, so an index is
#   compared with it before it is brought up to date: `not_yet_applied`.)
#   Ids grow with `ops.seq`, so `ops.first_chunk` (and `first_vector`) is the whole replay log of additions.
# - tombstones are the replay log of removals; they are dropped once every derived index has seen them.
# - equal vectors are stored, and indexed, once: a few hundred copies of one boilerplate passage tear an HNSW graph
#   apart (300 copies of 5 passages among 10,000: recall@50 of all falls to 0.81), and a document that changes in one
#   place keeps the vectors of the others.
# - chunks_fts is an external-content index with detail=none: a third of the size of a positional one. It answers
#   "which chunks may match", the regular expression decides.
# - texts and vectors have tables of their own: what every search looks up (is this chunk live, whose is it, does its
#   document satisfy the filter) then stays in a few megabytes of cache.
DDL = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE ops (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  at REAL NOT NULL,
  first_chunk INTEGER NOT NULL,
  first_vector INTEGER NOT NULL
);
CREATE TABLE tombstones (
  kind TEXT NOT NULL CHECK (kind IN ('chunk', 'vector')),
  id INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX tombstones_by_seq ON tombstones (kind, seq);
CREATE TABLE derived (
  name TEXT PRIMARY KEY,
  generation INTEGER NOT NULL,
  applied_seq INTEGER NOT NULL,
  fault TEXT
) WITHOUT ROWID;

CREATE TABLE sources (
  id TEXT PRIMARY KEY,
  root TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  size INTEGER NOT NULL,
  modified REAL NOT NULL,
  status TEXT NOT NULL,
  reason TEXT
) WITHOUT ROWID;
CREATE INDEX sources_by_root ON sources (root);

CREATE TABLE documents (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  source_id TEXT NOT NULL,
  uri TEXT NOT NULL,
  title TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  metadata TEXT NOT NULL
);
CREATE INDEX documents_by_source ON documents (source_id);
CREATE INDEX documents_by_uri ON documents (uri);
CREATE INDEX documents_by_title ON documents (title);
CREATE TABLE documents_text (document_key INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE documents_metadata (
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  value NOT NULL,
  document_key INTEGER NOT NULL,
  PRIMARY KEY (name, kind, value, document_key)
) WITHOUT ROWID;
CREATE INDEX documents_metadata_by_document ON documents_metadata (document_key);

CREATE TABLE chunks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  document_key INTEGER NOT NULL,
  vector_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  start INTEGER NOT NULL,
  stop INTEGER NOT NULL
);
CREATE TABLE chunks_text (chunk_id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE UNIQUE INDEX chunks_by_document ON chunks (document_key, position);
CREATE INDEX chunks_by_vector ON chunks (vector_id);
CREATE TABLE vectors (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  digest BLOB NOT NULL UNIQUE,
  vector BLOB NOT NULL
);
CREATE TABLE embeddings (embed_hash TEXT PRIMARY KEY, vector_id INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX embeddings_by_vector ON embeddings (vector_id);
CREATE VIRTUAL TABLE chunks_fts USING fts5(
  text, content='chunks_text', content_rowid='chunk_id', tokenize='trigram', detail=none, columnsize=0
);
"""


def create_schema(connection: sqlite3.Connection) -> None:
    """Lay out an empty record."""
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        f"BEGIN;{DDL}PRAGMA application_id = {APPLICATION_ID};PRAGMA user_version = {SCHEMA_VERSION};COMMIT;"
    )


def configure(connection: sqlite3.Connection) -> None:
    """Per-connection settings.

    synchronous=FULL syncs the WAL at each commit: what was acknowledged survives a power loss as well as a kill, as
    far as the disk tells the truth about fsync. It costs one fsync per batch of documents, which embedding dwarfs.
    """
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -32768")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA busy_timeout = 10000")


def rebuild_trigrams(connection: sqlite3.Connection) -> None:
    """Build the trigram index anew from the stored passages."""
    connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")


def put_meta(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Write a row of `meta`, over the one of that name if there is one."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
