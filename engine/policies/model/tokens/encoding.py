"""Text to token ids and back, in the vocabulary of one model.

A codec never turns foreign text into special tokens: `encode` takes every character as text, whatever it spells. Only
`encode_framing`, which is given the engine's own words, knows special tokens.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from thresher.engine.errors import InvalidRequest, ModelRefused
from thresher.engine.tokenizers import valid_unicode

CACHED_TEXTS = 1_024
CACHED_CHARACTERS = 20_000
"""A chunk is measured before it is chosen, when it is added, and by every search that finds it: once is enough."""
_PROBE = "Ab, c\n\n  é漢🙂 <x>{'y': 1}\n"


class Codec(Protocol):
    """The vocabulary of a model. Shared by searches and threads."""

    @property
    def name(self) -> str:
        """How messages call it."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text` encoded by itself, as plain text throughout. Lone surrogates are replaced."""

    def encode_framing(self, text: str) -> tuple[int, ...]:
        """Ids of the engine's own words, in which special tokens are meant as such."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens spelled out; bytes that are no UTF-8 become U+FFFD.

        Raises:
            ModelRefused: an id is not in the vocabulary.
        """

    def special(self, token: str) -> int:
        """Id of a special token. `InvalidRequest` if the vocabulary has none of this name."""


class CodecCounter:
    """Counts tokens with a codec. Framing is counted by the renderer that adds it, so there is no overhead here."""

    message_overhead = 0

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def count(self, text: str) -> int:
        """Number of tokens of `text` by itself."""
        return len(self._codec.encode(text))


class HarmonyCodec:
    """o200k_harmony, the vocabulary of gpt-oss and Context-1.

    Text is encoded by bpe-openai, whose time is linear in its length (openai-harmony's own takes a second for 50,000
    equal letters, which a document may hold) and whose ids are the same. The rest is openai-harmony's.
    """

    name = "o200k_harmony"

    def __init__(self) -> None:
        import bpe_openai

        self._text: Any = bpe_openai.get_encoding("o200k_base")
        self.harmony: Any = _load_harmony()
        """The `openai_harmony.HarmonyEncoding`."""
        self._cached = lru_cache(maxsize=CACHED_TEXTS)(self._encode)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text."""
        return self._cached(text) if len(text) <= CACHED_CHARACTERS else self._encode(text)

    def encode_framing(self, text: str) -> tuple[int, ...]:
        """Ids of the engine's own words."""
        return tuple(self.harmony.encode(text, allowed_special="all"))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids."""
        try:
            return str(self.harmony.decode(ids))
        except (RuntimeError, OverflowError) as error:
            raise ModelRefused(
                f"there are ids that {self.name} does not have ({error}): another model is served than was named"
            ) from error

    def special(self, token: str) -> int:
        """Id of a special token."""
        ids = self.encode_framing(token)
        if len(ids) != 1:
            raise InvalidRequest(f"{self.name} has no token {token!r}", param="policy")
        return ids[0]

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._text.encode_ordinary(valid_unicode(text)))


class HubCodec:
    """The vocabulary of a model folder as the Hugging Face hub lays it out: its `tokenizer.json`.

    For byte-level vocabularies (Qwen, SmolLM, Llama 3, …): what a piece of text encodes to must not depend on where in
    the prompt it stands, and must decode to the same text; a folder whose tokenizer does otherwise is refused.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise InvalidRequest(
                f"there is no {path}: name a model folder that holds its tokenizer.json", param="policy"
            )
        self.name = folder.name
        layout = json.loads(path.read_text("utf-8"))
        # Without its added tokens it cannot produce one, whatever a text spells.
        plain = {**layout, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self._framing: Any = Tokenizer.from_file(str(path))
        self._framing.no_truncation()
        self._framing.no_padding()
        self._plain: Any = Tokenizer.from_str(json.dumps(plain))
        self._cached = lru_cache(maxsize=CACHED_TEXTS)(self._encode)
        if self.decode(self.encode(_PROBE)) != _PROBE:
            raise InvalidRequest(
                f"the tokenizer in {folder} does not give back the text it encodes, so prompts cannot be built from "
                "its ids: use a model with a byte-level vocabulary, or the `chat` policy",
                param="policy",
            )

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text."""
        return self._cached(text) if len(text) <= CACHED_CHARACTERS else self._encode(text)

    def encode_framing(self, text: str) -> tuple[int, ...]:
        """Ids of the engine's own words."""
        return tuple(self._framing.encode(valid_unicode(text), add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids."""
        try:
            return str(self._framing.decode(list(ids), skip_special_tokens=False))
        except OverflowError as error:
            raise ModelRefused(f"there are ids that {self.name} does not have: another model is served") from error

    def special(self, token: str) -> int:
        """Id of a special token."""
        found = self._framing.token_to_id(token)
        if found is None:
            raise InvalidRequest(
                f"the vocabulary of {self.name} has no token {token!r}: it is not made for this prompt format, "
                "choose another profile or the `chat` policy",
                param="policy",
            )
        return int(found)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._plain.encode(valid_unicode(text), add_special_tokens=False).ids)


@lru_cache(maxsize=1)
def harmony_codec() -> HarmonyCodec:
    """The shared harmony codec; loading takes about 2 s and 70 MB, once a process.

    Raises:
        InvalidRequest: openai-harmony is not installed.
    """
    return HarmonyCodec()


@lru_cache(maxsize=8)
def hub_codec(folder: Path) -> HubCodec:
    """The shared codec of a model folder."""
    return HubCodec(folder)


def split_point(codec: Codec, ids: Sequence[int], offset: int) -> int:
    """Index of the token in which the character at `offset` of the decoded text begins.

    So that `ids[:index]` is text before it, all of which but a few characters that share its token.
    """
    low, high = 0, len(ids)
    while low < high:  # the largest index whose prefix is no longer than `offset`
        middle = (low + high + 1) // 2
        if len(codec.decode(ids[:middle])) <= offset:
            low = middle
        else:
            high = middle - 1
    return low


_LOADING = threading.Lock()
_BASE = "TIKTOKEN_ENCODINGS_BASE"


def _load_harmony() -> Any:
    """openai-harmony's encoding, without a network: it is pointed at the ranks that bpe-openai ships.

    It reads a file, so the ranks lie in a temporary folder while it loads; a folder that the user named is kept to.
    """
    try:
        import openai_harmony
    except ImportError as error:
        raise InvalidRequest(
            "prompts in the harmony format need openai-harmony: pip install openai-harmony", param="policy"
        ) from error
    name = openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS
    with _LOADING:
        if os.environ.get(_BASE):
            return openai_harmony.load_harmony_encoding(name)
        packed = resources.files("bpe_openai.data").joinpath("o200k_base.tiktoken.gz").read_bytes()
        with tempfile.TemporaryDirectory(prefix="thresher-ranks-") as folder:
            Path(folder, "o200k_base.tiktoken").write_bytes(gzip.decompress(packed))
            os.environ[_BASE] = folder
            try:
                return openai_harmony.load_harmony_encoding(name)
            finally:
                del os.environ[_BASE]
