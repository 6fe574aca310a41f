from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support import prepare

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.paths import collection_path

TEXTS = {
    "ferry.md": "The ferry Alma was built in 1931 by Corran & Sons.\n\nIts engine came from the Brask works in Holm.",
    "brask.md": "The Brask works made marine engines.\n\nThe founder of the Brask works was Edda Brask.",
    "corran.md": "Corran & Sons closed its yard in 1958.\n\nThe yard stood in Port Ellin.",
}


@pytest.fixture(scope="session")
def harbour_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    embedder = load_embedder("wordllama")
    path = tmp_path_factory.mktemp("template") / "harbour"
    with Collection.create(path, embedder, name="harbour") as collection:
        for document_id, text in TEXTS.items():
            document = Document(
                document_id,
                f"file:///{document_id}",
                document_id.removesuffix(".md").title(),
                text,
                {"year": 1931 if document_id == "ferry.md" else 1958},
                document_id,
            )
            collection.upsert([prepare(document, embedder=embedder)], source_id=document_id)
    return path


@pytest.fixture
def harbour(harbour_template: Path) -> str:
    """The name of a small closed collection, a copy of the test's own."""
    shutil.copytree(harbour_template, collection_path("harbour"))
    return "harbour"


@pytest.fixture
def pdf_collection(sample_docs: Path, tmp_path: Path) -> str:
    """The name of a small closed collection of one PDF of four pages and one text file, `note.txt`."""
    note = tmp_path / "note.txt"
    note.write_text("A note on the findings of the inquiry.")
    with Collection.create(collection_path("pages"), load_embedder("wordllama"), name="pages") as collection:
        report = ingest(collection, [sample_docs / "incidents" / "petrel-inquiry-1980.pdf", note])
    assert {str(source.status) for source in report.sources} == {"indexed"}
    return "pages"


@pytest.fixture
def evaluation_set(tmp_path: Path) -> Path:
    """A folder with corpus.jsonl and queries.jsonl: two answerable questions, one that is not."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    documents = [{"id": name, "title": name, "text": text, "metadata": {}} for name, text in TEXTS.items()]
    queries = [
        {
            "id": "q1",
            "question": "Who founded the works that made the engine of the Alma?",
            "answers": ["Edda Brask"],
            "gold_ids": ["ferry.md", "brask.md"],
            "hops": 2,
            "split": "dev",
        },
        {
            "id": "q2",
            "question": "Where stood the yard of Corran & Sons?",
            "answers": ["Port Ellin"],
            "gold_ids": ["corran.md"],
            "split": "dev",
        },
        {"id": "q3", "question": "What did the Alma cost?", "answers": [], "gold_ids": [], "split": "test"},
    ]
    for name, records in (("corpus", documents), ("queries", queries)):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (directory / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return directory
