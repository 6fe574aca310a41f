"""From a spec to a provider: `brave`, `searxng:http://localhost:8888`, `local:FOLDER[@BASE-URL]`, …"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from thresher.corpus.errors import CorpusError
from thresher.corpus.plugins import Group, made, plugin_names
from thresher.corpus.web.providers import apis
from thresher.corpus.web.providers.base import Provider
from thresher.corpus.web.providers.duckduckgo import DuckDuckGo
from thresher.corpus.web.providers.http import Api, HttpProvider
from thresher.corpus.web.providers.local import NOWHERE, SavedPages

SEARXNG_NAMES = ("SEARXNG_URL", "SEARX_HOST")
_KEYED: Mapping[str, tuple[Callable[[str], Api], tuple[str, ...]]] = {
    "brave": (apis.brave, apis.BRAVE_KEYS),
    "tavily": (apis.tavily, apis.TAVILY_KEYS),
    "exa": (apis.exa, apis.EXA_KEYS),
    "serper": (apis.serper, apis.SERPER_KEYS),
}
NAMES = ("searxng", *_KEYED, "duckduckgo", "json", "local")


class UnknownProvider(CorpusError):
    """There is no such provider, or it lacks what it needs; the message says what."""

    code = "unknown_provider"


def load_provider(spec: str, environ: Mapping[str, str] | None = None) -> Provider:
    """A provider.

    `searxng[:URL]` (or SEARXNG_URL), `brave`, `tavily`, `exa`, `serper` (with the keys that people export for them),
    `duckduckgo[:ENGINES]`, `json:URL` (a GET whose address has `{query}` in it and that answers `{"results": [{url,
    title, snippet}]}`; others from Python by `apis.generic`), `local:FOLDER[@BASE-URL]`,
    or what a package adds (`thresher.corpus.plugins`).

    Raises:
        UnknownProvider: there is no such one, or its key or address is missing.
        MissingPackage, UnusablePages: what it needs is not there.
        PluginError: a package adds a provider of that name, and it cannot be used.
    """
    env = os.environ if environ is None else environ
    name, _, rest = spec.strip().partition(":")
    if name in _KEYED:
        make, variables = _KEYED[name]
        key = next((env[variable].strip() for variable in variables if env.get(variable, "").strip()), "")
        if not key:
            raise UnknownProvider(f"{name} needs a key: set {' or '.join(variables)}")
        if not key.isascii() or not key.isprintable() or " " in key:  # no header can carry it, and errors would show it
            raise UnknownProvider(f"the key in {' or '.join(variables)} has characters that no key has")
        return HttpProvider(make(key), key=key)
    if name == "searxng":
        url = rest or next((env[variable] for variable in SEARXNG_NAMES if env.get(variable)), "")
        if not url:
            raise UnknownProvider(f"searxng needs an address: write searxng:URL, or set {SEARXNG_NAMES[0]}")
        return HttpProvider(apis.searxng(url))
    if name == "duckduckgo":
        return DuckDuckGo(rest or "auto")
    if name == "json":
        if "{query}" not in rest:
            raise UnknownProvider("json needs an address with {query} in it: json:https://HOST/search?q={query}")
        return HttpProvider(apis.generic(rest))
    if name == "local" and rest:
        folder, at, base = rest.rpartition("@")
        if not at or "://" not in base:
            folder, base = rest, NOWHERE
        return SavedPages(Path(folder).expanduser(), base)
    added: Provider | None = made(Group.PROVIDERS, spec.strip())
    if added is not None:
        return added
    raise UnknownProvider(
        f"there is no web provider {spec!r}; the known ones are {', '.join((*NAMES, *plugin_names(Group.PROVIDERS)))}"
    )
