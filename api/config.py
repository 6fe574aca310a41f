"""Settings: defaults, below the configuration file, below the environment, below flags.

The file is TOML, `config.toml` in THRESHER_HOME unless `--config` or THRESHER_CONFIG names another. In the
environment a setting is called THRESHER_ and its name in capitals. A key that is no setting is an error, wherever it
stands: a typo must not silently leave the default in force.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from thresher.api.errors import ConfigError
from thresher.api.policies import PolicyChoice
from thresher.api.tracing.cost import Prices
from thresher.api.values import (
    AUTO,
    ApiKey,
    ChromaSpec,
    ChunkerSpec,
    Collect,
    CollectionName,
    Fusion,
    Listed,
    LogLevel,
    ModelUrl,
    NearDuplicates,
    PhoneRegions,
    PolicySpec,
    Price,
    ProfileName,
    RedactionPatterns,
    Sources,
)
from thresher.api.web import WebChoice
from thresher.corpus.backends import CHILD, IN_PROCESS
from thresher.corpus.chunker import CHUNKER_VERSION
from thresher.corpus.paths import home
from thresher.corpus.retrieval.ranking import MAX_DEPTH, MIN_DEPTH, RRF, Ranking, load_ranking
from thresher.engine.requests import (
    MAX_CONTEXT_TOKENS,
    MAX_ROLLOUTS,
    MIN_CONTEXT_TOKENS,
    Effort,
    SearchRequest,
    Source,
    Strategy,
)

PREFIX = "THRESHER_"
OTHER_VARIABLES = frozenset(
    {
        "THRESHER_HOME",
        "THRESHER_CONFIG",
        "THRESHER_EMBEDDINGS_KEY",
        "THRESHER_RERANK_KEY",
        "THRESHER_URL",
        "THRESHER_CLIENT_KEY",
    }
)
"""Variables with our prefix that are read elsewhere and are no settings."""

_FOR_TESTS = "THRESHER_TEST_"

API_KEY = PREFIX + "API_KEY"
FALLBACKS = {"model_url": "OPENAI_BASE_URL", "model_api_key": "OPENAI_API_KEY"}
"""Settings that a variable of others fills in where nothing of ours does."""

_SECRETS = frozenset({"api_key", "model_api_key"})
_FLAGS = {"deadline_s": "--deadline"}
"""Flags that are not called like their setting."""


_REQUEST = {
    "effort": "effort",
    "strategy": "strategy",
    "rollouts": "rollouts",
    "swarm": "swarm",
    "max_critical_steps": "max_critical_steps",
    "include_answer": "answer",
    "max_results": "max_results",
    "max_turns": "max_turns",
    "max_tokens": "max_tokens",
    "deadline_s": "deadline_s",
    "sources": "sources",
}
"""The setting behind each field of a request that has one."""


class Settings(BaseModel):
    """Everything that can be configured. Each field's description is what `thresher doctor` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    collection: CollectionName = Field("default", description="collection used by default")
    embedder: str = Field("minilm", min_length=1, description="embedder of new collections")
    chunker: ChunkerSpec = Field(CHUNKER_VERSION, description="how new collections cut texts into passages")
    ocr: bool = Field(False, description="read pictures and scanned pages too")
    chroma: ChromaSpec = Field(AUTO, description="where dense indexes live; auto: a child of the server, or in-process")
    fusion: Fusion = Field(RRF, description="how dense search and BM25 are fused: rrf, tuned or convex:ALPHA")
    near_duplicates: NearDuplicates = Field(False, description="collapse near-duplicates: on, off or a share")
    reranker: str | None = Field(None, min_length=1, description="model that reads and reorders the first passages")
    rerank_depth: int = Field(MAX_DEPTH, ge=MIN_DEPTH, le=MAX_DEPTH, description="passages that the reranker reads")
    policy: PolicySpec = Field(
        "builtin", description="what decides: builtin, builtin:WEIGHTS, chat:MODEL, tokens:MODEL or hf:PATH"
    )
    tools: Listed = Field((), description="tools of installed packages that a policy is offered, too")
    model_url: ModelUrl | None = Field(None, description="the model's server, up to /v1; unset: localhost:8000")
    model_api_key: ApiKey | None = Field(None, description="key that the model's server wants")
    model_temperature: float | None = Field(None, ge=0, le=2, description="sampling; unset: the policy's own")
    model_top_p: float | None = Field(None, gt=0, le=1, description="sampling; unset: the policy's own")
    model_seed: int | None = Field(None, description="seed of sampling, for servers that take one")
    model_timeout_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="how long one answer of the model may take"
    )
    model_max_reply_tokens: int | None = Field(None, ge=1, description="tokens the model may write in a turn")
    price_prompt: Price | None = Field(None, description="price of a million prompt tokens, for the costs of traces")
    price_cached: Price | None = Field(None, description="the same where the server's cache had them")
    price_completion: Price | None = Field(None, description="price of a million tokens that the model writes")
    currency: str = Field("USD", min_length=1, max_length=8, description="what the prices are in")
    profile: ProfileName | None = Field(
        None, description="words and limits: thresher, context1, small; unset: the model's"
    )
    strategy: Strategy = Field(Strategy.PRUNE, description="how the context is kept small")
    effort: Effort = Field(Effort.MEDIUM, description="how hard to search")
    rollouts: int = Field(1, ge=1, le=MAX_ROLLOUTS, description="searches of the same question that are fused")
    swarm: bool = Field(False, description="let the policy hand sub-questions to sub-agents")
    max_critical_steps: int | None = Field(None, ge=1, description="turns at most, counting parallel ones once")
    answer: bool = Field(False, description="write an answer whose citations are checked")
    max_results: int = Field(10, ge=1, le=100, description="passages returned at most")
    max_turns: int | None = Field(None, ge=1, description="turns at most; unset: the effort's own")
    max_tokens: int | None = Field(
        None, ge=MIN_CONTEXT_TOKENS, le=MAX_CONTEXT_TOKENS, description="size of the context in tokens"
    )
    deadline_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="wall-clock limit of a search in seconds"
    )
    sources: Sources = Field((Source.CORPUS,), description="where to search: corpus, web, or corpus,web")
    web_providers: Listed = Field((), description="who is asked to search the web, in order: brave, searxng:URL, …")
    web_allow: Listed = Field((), description="hosts and networks that may be fetched from though not public")
    web_robots: bool = Field(True, description="respect sites' robots.txt")
    web_record: str | None = Field(None, min_length=1, description="folder that all web traffic is recorded into")
    web_replay: str | None = Field(None, min_length=1, description="recording that takes the place of the web")
    web_keep: bool = Field(False, description="put pages that a search has read into its collection")
    save_traces: bool = Field(True, description="keep the trajectory of every search")
    host: str = Field("127.0.0.1", min_length=1, description="address that the server binds")
    port: int = Field(8420, ge=0, le=65_535, description="port that the server binds; 0: any free one")
    api_key: ApiKey | None = Field(None, description="key that HTTP clients must send, beside those of `thresher keys`")
    require_key: bool = Field(False, description="want a key from clients on this machine too")
    rate_limit: int | None = Field(None, ge=1, description="requests a minute of each key that has no limit of its own")
    audit: bool | None = Field(None, description="log requests in audit.jsonl; unset: those that bring or need a key")
    audit_max_bytes: int = Field(10_000_000, ge=4_096, description="size at which audit.jsonl is put aside")
    max_searches: int = Field(64, ge=1, description="searches that the server runs at once")
    max_deadline_s: float = Field(
        3_600, gt=0, allow_inf_nan=False, description="the longest that a search over HTTP may run, in seconds"
    )
    keep_searches_days: float = Field(30, gt=0, allow_inf_nan=False, description="how long searches are remembered")
    keep_searches: int = Field(2_000, ge=1, description="searches that are remembered of each tenant, at most")
    collect: Collect = Field(
        "off", description="searches that are kept to learn from: off, consented (where request or key says so) or all"
    )
    collect_keep_days: float = Field(90, gt=0, allow_inf_nan=False, description="how long collected records are kept")
    collect_redact: RedactionPatterns = Field(
        (), description="patterns (RE2) taken out of collected records, beside personal data and secrets"
    )
    collect_passages: Literal["redact", "keep", "drop"] = Field(
        "redact", description="passages in collected records: redact them as all else, keep them, or drop their texts"
    )
    collect_phone_regions: PhoneRegions = Field(
        (), description="countries whose phone numbers are found without +, 00 or 0: ES, SG, …"
    )
    max_body_bytes: int = Field(1_048_576, ge=1_024, description="largest request body that the server reads")
    max_upload_bytes: int = Field(268_435_456, ge=1_024, description="the same for uploads of files")
    max_jobs: int = Field(2, ge=1, le=64, description="jobs that the server runs at once")
    shutdown_grace_s: float = Field(
        10.0, ge=0, le=3_600, allow_inf_nan=False, description="how long searches may go on when the server is stopped"
    )
    log_format: Literal["text", "json"] = Field("text", description="what the server's log is made of")
    log_level: LogLevel = Field("warning", description="the least that the server logs; info has every request")
    trace_queries: bool = Field(False, description="put questions into OpenTelemetry spans, too")

    def chroma_spec(self, *, serving: bool) -> str:
        """Where dense indexes live. A server has Chroma in a child, which it restarts when it dies."""
        if self.chroma != AUTO:
            return self.chroma
        return CHILD if serving else IN_PROCESS

    def ranking(self) -> Ranking:
        """How searches rank. The same settings share one reranker in a process.

        Raises:
            RerankError: there is no such reranker.
        """
        return shared_ranking(self.fusion, self.near_duplicates, self.reranker, self.rerank_depth)

    def search_request(self, query: str, **given: Any) -> SearchRequest:
        """A request of the engine as these settings say; what is `given` and not None goes before them.

        Raises:
            InvalidRequest: a value is out of range.
        """
        named = {name: value for name, value in given.items() if value is not None}
        values = {name: getattr(self, setting) for name, setting in _REQUEST.items()}
        if named.get("effort", self.effort) is Effort.MINIMAL:
            # A request for one plain search is no mistake where the settings ask for more of every other.
            values.update(rollouts=1, swarm=False)
        return SearchRequest(query, **{**values, **named})

    def policy_choice(self) -> PolicyChoice:
        """What decides, and how its model is asked."""
        return PolicyChoice(
            spec=self.policy,
            profile=self.profile,
            url=self.model_url,
            temperature=self.model_temperature,
            top_p=self.model_top_p,
            seed=self.model_seed,
            timeout_s=self.model_timeout_s,
            max_reply_tokens=self.model_max_reply_tokens,
        )

    def web(self) -> WebChoice:
        """How the web is searched, if it is."""
        return WebChoice(
            self.web_providers, self.web_allow, self.web_robots, self.web_record, self.web_replay, self.web_keep
        )

    def prices(self) -> Prices:
        """What the model costs, as far as it is set."""
        return Prices(self.price_prompt, self.price_completion, self.price_cached, self.currency)


@lru_cache(maxsize=8, typed=True)  # True and 1.0 are equal, but not the same here
def shared_ranking(fusion: str, near_duplicates: bool | float, reranker: str | None, depth: int) -> Ranking:
    """A ranking from settings; asked for again it is the same one, with a model that is loaded already.

    Raises:
        RerankError: there is no such reranker.
    """
    return load_ranking(fusion=fusion, near_duplicates=near_duplicates, reranker=reranker, depth=depth)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings and, for each, where its value came from: `default`, a file, a variable or `flag`."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Resolved:
    """Settle every setting. Flags that are None count as not given.

    Raises:
        ConfigError: unknown key, wrong type or value, unreadable file; the message names the place.
    """
    variables = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for name, variable in FALLBACKS.items():
        if variables.get(variable):
            values[name] = _check(name, variables[variable], variable)
            origins[name] = variable
    file = _config_file(config, variables)
    if file is not None:
        for name, value in _read_file(file).items():
            # Strict, as JSON: TOML has types of its own, so `port = "80"` is a mistake and not a number.
            values[name] = _check(name, value, f"{name} in {file}", strict=True)
            origins[name] = str(file)
    for variable, value in _from_environment(variables).items():
        name = variable.removeprefix(PREFIX).lower()
        values[name] = _check(name, value, variable)
        origins[name] = variable
    for name, value in (flags or {}).items():
        if value is not None:
            values[name] = _check(name, value, _FLAGS.get(name, "--" + name.replace("_", "-")))
            origins[name] = "flag"
    return Resolved(Settings.model_construct(**values), origins, file)


def _config_file(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to read; one that was named must exist."""
    named = config or (Path(environ["THRESHER_CONFIG"]) if environ.get("THRESHER_CONFIG") else None)
    if named is not None:
        path = named.expanduser()
        if not path.is_file():
            raise ConfigError(f"the configuration file {path} does not exist; create it or name another one")
        return path
    path = home() / "config.toml"
    return path if path.is_file() else None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from error
    for key in values:
        if key not in Settings.model_fields:
            raise ConfigError(f"unknown setting {key!r} in {path}; {_nearest(key, Settings.model_fields)}")
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that set something.

    An empty one counts as unset, as is usual for the environment. The key is the exception: whoever names it means to
    be protected, and an empty one is then a secret that was not passed on.
    """
    valid = {PREFIX + name.upper() for name in Settings.model_fields}
    found = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES or variable.startswith(_FOR_TESTS):
            continue
        if variable not in valid:
            raise ConfigError(f"unknown setting {variable} in the environment; {_nearest(variable, sorted(valid))}")
        if environ[variable] or variable == API_KEY:
            found[variable] = environ[variable]
    return found


def _check(name: str, value: Any, where: str, *, strict: bool = False) -> Any:
    adapter = _ADAPTERS[name]
    try:
        if strict:
            return adapter.validate_json(json.dumps(value, default=str), strict=True)
        return adapter.validate_python(value)
    except ValidationError as error:
        said = error.errors(include_url=False)[0]["msg"]
        detail = said.removeprefix("Value error, ")
        if detail == said:  # pydantic's own words, which do not show the value
            detail = f"{said[0].lower()}{said[1:]}{'' if name in _SECRETS else f', got {value!r}'}"
        raise ConfigError(f"{where}: {detail}") from None


def _nearest(key: str, valid: Iterable[str]) -> str:
    """The hint: the valid name most like `key`, or all of them where none is like it."""
    names = list(valid)
    bare = {name.removeprefix(PREFIX): name for name in names}  # the common prefix would make all names alike
    near = difflib.get_close_matches(key.removeprefix(PREFIX), bare, n=1, cutoff=0.5)
    return f"did you mean {bare[near[0]]}?" if near else f"the valid ones are {', '.join(names)}"


_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(field.rebuild_annotation()) for name, field in Settings.model_fields.items()
}
