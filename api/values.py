"""Values of settings: their types, and how what a user writes becomes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, SecretStr

from thresher.corpus.backends import load_backends
from thresher.corpus.chunker import load_chunker
from thresher.corpus.errors import CorpusError
from thresher.corpus.paths import collection_path
from thresher.corpus.retrieval.ranking import Ranking
from thresher.engine.errors import EngineError
from thresher.engine.requests import Source
from thresher.train.errors import TrainError

T = TypeVar("T")

AUTO = "auto"
"""The setting `chroma` that leaves the choice to the face: see `Settings.chroma_spec`."""


def _collection_name(name: str) -> str:
    try:
        collection_path(name)
    except CorpusError as error:
        raise ValueError(str(error)) from error
    return name


def _api_key(key: SecretStr) -> SecretStr:
    """The key without white space around it, which no HTTP header can carry. A blank one would open every door."""
    stripped = key.get_secret_value().strip()
    if not stripped:
        raise ValueError("the key is blank; it must have at least 1 character that is no white space, or be left out")
    return SecretStr(stripped)


def _model_url(url: str) -> str:
    """A server's base URL. One with a password in it is refused: URLs are shown, and end up in logs."""
    from thresher.engine.policies.model.settings import checked_url

    parts = urlsplit(url.strip())
    if "@" in parts.netloc:
        raise ValueError("a user name or password does not belong into the URL; set THRESHER_MODEL_API_KEY instead")
    return _accepted(lambda: checked_url(url))


def _policy(spec: str) -> str:
    place = spec.partition("@")[2]
    if "://" in place:
        _model_url(place)
    return spec


def _chroma(spec: str) -> str:
    if spec != AUTO:
        _accepted(lambda: load_backends(spec))
    return spec


def _chunker(spec: str) -> str:
    return _accepted(lambda: load_chunker(spec)).version


def _fusion(fusion: str) -> str:
    _accepted(lambda: Ranking(fusion))
    return fusion


def _near_duplicates(value: Any) -> bool | float:
    """Off, on with the measured threshold, or on with a threshold of one's own."""
    if isinstance(value, bool):
        return value
    if value in _SWITCH:
        return _SWITCH[value]
    try:
        share = float(value)
        _accepted(lambda: Ranking(near_duplicates=share))
    except (TypeError, ValueError):
        raise ValueError("must be on, off, or a share of a passage above 0 and up to 1") from None
    return share


def _accepted(make: Callable[[], T]) -> T:
    """What `make` returns; what the corpus or the engine refuses becomes a ValueError."""
    try:
        return make()
    except (CorpusError, EngineError, TrainError) as error:
        raise ValueError(str(error)) from error


def _listed(value: Any) -> tuple[str, ...]:
    """A list of strings, or one string: a JSON array (for values with commas), else with commas between them."""
    parts = (_json_strings(value) or value.split(",")) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("must be text, with commas between several")
    return tuple(stripped for part in parts if (stripped := part.strip()))


def _json_strings(text: str) -> list[str] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else None


def _sources(value: Any) -> tuple[Source, ...]:
    try:
        found = tuple(Source(name) for name in _listed(value))
    except ValueError as error:
        raise ValueError("must be corpus, web, or corpus,web") from error
    if not found or len(set(found)) != len(found):
        raise ValueError("must be corpus, web, or corpus,web")
    return found


def _patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    from thresher.train.production.detectors import Detector

    _accepted(lambda: Detector(patterns=patterns))
    return patterns


def _regions(regions: tuple[str, ...]) -> tuple[str, ...]:
    if regions:
        from thresher.train.production.detectors import Detector

        _accepted(lambda: Detector(phone_regions=regions))
    return regions


_SWITCH = {"on": True, "off": False}
CollectionName = Annotated[str, AfterValidator(_collection_name)]
ApiKey = Annotated[SecretStr, AfterValidator(_api_key)]
ModelUrl = Annotated[str, AfterValidator(_model_url)]
PolicySpec = Annotated[str, Field(min_length=1), AfterValidator(_policy)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ProfileName = Literal["thresher", "context1", "small"]
ChromaSpec = Annotated[str, AfterValidator(_chroma)]
ChunkerSpec = Annotated[str, AfterValidator(_chunker)]
Fusion = Annotated[str, AfterValidator(_fusion)]
LogLevel = Literal["debug", "info", "warning", "error"]
Listed = Annotated[tuple[str, ...], BeforeValidator(_listed)]
RedactionPatterns = Annotated[Listed, AfterValidator(_patterns)]
PhoneRegions = Annotated[Listed, AfterValidator(_regions)]
Collect = Literal["off", "consented", "all"]
Sources = Annotated[tuple[Source, ...], BeforeValidator(_sources)]
NearDuplicates = Annotated[bool | float, PlainValidator(_near_duplicates)]
