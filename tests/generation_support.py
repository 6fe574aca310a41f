"""A small corpus whose documents share names, and the passages and drafts that tests make of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stub_model import Reply

from thresher.corpus.collection import Collection

TEXTS = {
    "Alma.md": "The *Alma* is a ferry on Lake Orm. She was built by the Brask Works in 1931, launched "
    "in May 1932 and sold in 1970.\n\nThe *Alma* was commanded by Captain Olaf Rud until she was laid up.",
    "Berta.md": "The *Berta* is a ferry on Lake Orm. She was built by the Tarn Yard in 1940 and launched "
    "in June 1941.\n\n- **Length:** 31.5 m\n- **Service speed:** 11 knots",
    "Clara.md": "The *Clara* is a ferry on Lake Silt. She was launched in April 1955.\n\n"
    "- **Length:** 44 m\n- **Service speed:** 12 knots",
    "Brask Works.md": "The Brask Works is a company in Holm. It was founded by Edda Brask in 1871. "
    "It closed in 1975.\n\n"
    "The Brask Works employed the ferry Alma as a show ship in its last year.",
    "Edda Brask.md": "Edda Brask (born 3 May 1840) was an engineer. She was born in Vessel Bay. "
    "She married Jon Tveit in 1866.\n\n"
    "Edda Brask founded the Brask Works, and the town still speaks of the engineer Edda Brask.",
    "Olaf Rud.md": "Captain Olaf Rud was born in Skarn in 1899. He retired in 1961.\n\n"
    "Captain Olaf Rud received the Medal of Holm in 1958 for his years in the ferry Alma.",
    "Ida Falk.md": "Captain Ida Falk was born in Lund in 1911. She received the Medal of Holm in 1969.",
    "Tarn Yard.md": "The Tarn Yard is a company in Skarn. It was founded by Per Tarn in 1902.\n\n"
    "The ferry Berta lies there.",
    "register.csv": "row: 2\nname: Alma\ntype: ferry\nowner: Orm Line\ncall sign: ORAL1\n\n"
    "row: 3\nname: Berta\ntype: ferry\nowner: Orm Line\ncall sign: ORBE2\n\n"
    "row: 4\nname: Clara\ntype: ferry\nowner: Silt Line\ncall sign: SICL3",
    "weather.md": "Fog is common on the lake in autumn, and nobody minds. Boats wait for it to lift.",
}


def evidence_of(task: dict[str, Any], collection: Collection) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each step of a task with the text of its chunk and of its document."""
    for step in task["evidence"]:
        (chunk,) = collection.chunks([step["chunk_id"]])
        yield step, chunk.text, collection.text(step["document_id"])


HOPS = [
    {
        "question": "Which works built the Alma?",
        "answer": "Brask Works",
        "quote": "She was built by the Brask Works in 1931",
    },
    {
        "question": "Who founded the Brask Works?",
        "answer": "Edda Brask",
        "quote": "The Brask Works is a company in Holm. It was founded by Edda Brask",
    },
]


def composed(body: dict[str, Any], **changed: Any) -> Reply:
    """A model that composes over the passages of Alma and the Brask Works, and reads what it is given."""
    import json

    system, user = body["messages"][0]["content"], body["messages"][1]["content"]
    if system.startswith("You write"):
        first, second = user.find("built by the Brask"), user.find("founded by Edda")
        if not 0 <= first < second:
            return Reply("I can make none: {}")
        value = {"question": "Who founded the works where the ferry of 1932 on Lake Orm came from?"}
        return Reply(f"Here it is: {json.dumps({**value, 'answer': 'Edda Brask', 'hops': HOPS, **changed})}")
    if system.startswith("You change"):
        return Reply('{"question": "Who insured the works where the ferry of 1932 on Lake Orm came from?"}')
    knows = "founded by Edda Brask" in user and "built by the Brask Works" in user and "insured" not in user
    return Reply("Edda Brask." if knows else "unknown")
