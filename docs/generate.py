"""A hook of mkdocs: pages made from the code when the site is built, the command line and the settings.

What they say is what `thresher --help` and `thresher doctor` say, so neither page can fall behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import SecretStr

from thresher.api.cli.app import app
from thresher.api.cli.console import ExitCode
from thresher.api.config import FALLBACKS, PREFIX, Settings

STATUSES: Mapping[ExitCode, str] = {
    ExitCode.OK: "Fine.",
    ExitCode.ERROR: "Something failed. One line on stderr says what, and what to do.",
    ExitCode.USAGE: "The command, a setting or a request is wrong.",
    ExitCode.PARTIAL: "Part of it was done: some files failed, or a limit ended the search.",
    ExitCode.INSUFFICIENT: "The search ended by itself, and its evidence does not suffice.",
    ExitCode.INTERRUPTED: "Ctrl-C. Finished work is kept; the same command goes on where it stopped.",
}

SECTIONS: Mapping[str, str] = {
    "collection": "Collections",
    "fusion": "Ranking",
    "policy": "Policy and model",
    "strategy": "Searches",
    "sources": "The web",
    "save_traces": "Server",
    "collect": "Collecting",
    "max_body_bytes": "Sizes and logs of the server",
}
"""Sections of the settings page, by the setting that each begins with."""

ELSEWHERE: Sequence[tuple[str, str]] = (
    ("THRESHER_HOME", "where everything is kept: collections, traces, keys (default `~/.thresher`)"),
    ("THRESHER_CONFIG", "the configuration file, in place of `config.toml` in `THRESHER_HOME`"),
    ("THRESHER_EMBEDDINGS_KEY", "key of an `openai:` embedder's endpoint"),
    ("THRESHER_RERANK_KEY", "key of an `endpoint:` reranker"),
    ("THRESHER_URL, THRESHER_CLIENT_KEY", "server and key of `thresher.api.client`"),
    ("BRAVE_API_KEY, TAVILY_API_KEY, EXA_API_KEY, SERPER_API_KEY, SEARXNG_URL", "web providers"),
    ("CHROMA_API_KEY, CHROMA_TENANT, CHROMA_DATABASE", "Chroma Cloud, where the setting `chroma` is `cloud`"),
)
"""Variables that are no settings. Secrets of others are read from the variables that their own clients use."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those that are written by hand."""
    files.append(File.generated(config, "reference/cli.md", content=cli_page()))
    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    return files


def cli_page() -> str:
    """Every command, its arguments and options."""
    commands = list(_commands(typer.main.get_command(app), "thresher"))
    lines = [
        "# Command line",
        "",
        "Generated from the commands themselves; `thresher COMMAND --help` says the same.",
        "",
        "Every command but `mcp` takes `--json`: one JSON document on stdout, "
        "everything else on stderr. `thresher --config FILE COMMAND …` reads settings from FILE. While a `thresher "
        "serve` has a collection open, commands on it are carried out by the server, over a socket that only the same "
        "user can reach.",
        "",
        "| command | does |",
        "|---|---|",
        *(f"| [`{path}`](#{_anchor(path)}) | {_cell(_summary(command))} |" for path, command in commands),
        "",
        "## Exit status",
        "",
        "| status | means |",
        "|---|---|",
        *(f"| {int(status)} | {STATUSES[status]} |" for status in ExitCode),
        "",
    ]
    for path, command in commands:
        lines += _command(path, command)
    return "\n".join(lines)


def settings_page() -> str:
    """Every setting with its flag, variable, default and meaning."""
    lines = [
        "# Settings",
        "",
        "Generated from the settings themselves; `thresher doctor` shows them with the values in force and where each "
        "came from.",
        "",
        "A flag goes before a variable, a variable before the file, the file before the default. The file is "
        "`config.toml` in `THRESHER_HOME` (default `~/.thresher`), or the one named by `--config` or "
        "`THRESHER_CONFIG`. A misspelt key is an error, wherever it stands. The variable of a setting is `THRESHER_` "
        "and its name in capitals; lists are written in a variable with commas, or as a JSON array where an item has a "
        "comma, and as an array in the file.",
        "",
        '```toml title="config.toml"',
        'policy = "chat:openai/gpt-oss-20b"',
        'model_url = "http://localhost:8000/v1"',
        "max_results = 20",
        'web_providers = ["duckduckgo"]',
        "```",
        "",
        "No request over HTTP can change a setting. There is no flag for a secret: it would stand in the list of "
        "processes and in the shell's history.",
        "",
    ]
    schema = Settings.model_json_schema()
    for name, field in Settings.model_fields.items():
        if name in SECTIONS:
            lines += [
                "",
                f"## {SECTIONS[name]}",
                "",
                "| setting | values | default | what it is |",
                "|---|---|---|---|",
            ]
        values = _values(schema["properties"][name], schema.get("$defs", {}))
        names = f"`{name}`{{ #{name} }}<br><small>`{PREFIX}{name.upper()}`</small>"
        if flag := _flag(name):
            names += f"<br><small>`{flag}`</small>"
        lines.append(f"| {names} | {values} | {_default(field.default)} | {_cell(_meaning(name, field.description))} |")
    lines += ["", "## Variables that are no settings", "", "| variable | what it is |", "|---|---|"]
    lines += [f"| {', '.join(f'`{v}`' for v in names.split(', '))} | {what} |" for names, what in ELSEWHERE]
    return "\n".join([*lines, ""])


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Commands that do something, depth first, as the help lists them."""
    children: Mapping[str, Any] = getattr(command, "commands", {})
    if not children or getattr(command, "invoke_without_command", False):
        yield path, command
    for name, child in children.items():
        if not child.hidden:
            yield from _commands(child, f"{path} {name}")


def _command(path: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *(_metavar(a) for a in arguments)])
    lines = [f"## {path}", "", "```text", usage, "```", "", *_paragraphs(command.help), ""]
    rows = [f"| `{_metavar(a)}` | {_cell(a.help or '')} |" for a in arguments]
    rows += [f"| {_spelling(o)} | {_cell(o.help or '')}{_standard(o)} |" for o in options]
    return [*lines, *(["| argument, option | what it is |", "|---|---|", *rows, ""] if rows else [])]


def _paragraphs(text: str | None) -> list[str]:
    """A docstring's paragraphs, each on one line."""
    parts = [" ".join(part.split()) for part in (text or "").split("\n\n")]
    return "\n\n".join(_prose(part) for part in parts).split("\n")


def _summary(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _spelling(option: Any) -> str:
    taken = "" if option.is_flag else f" {_metavar(option)}"
    names = sorted(option.opts, key=len)
    return "<br>".join(f"`{name}{taken}`" for name in [*names, *option.secondary_opts])


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    kind = getattr(getattr(parameter, "type", None), "name", "") or "value"
    return {"integer": "N", "float": "NUMBER", "path": "PATH"}.get(kind, str(kind).upper())


def _standard(option: Any) -> str:
    """A default that says something: not None, not "off"."""
    shown = option.default is not None and not option.is_flag and option.show_default is not False
    return f" Default: `{option.default}`." if shown and not callable(option.default) and option.default != [] else ""


def _flag(name: str) -> str | None:
    """The flag that sets a setting, where a command has one: its parameter is called like the setting."""
    commands = dict(_commands(typer.main.get_command(app), "thresher"))
    for path in ("thresher ingest", "thresher search", "thresher serve"):
        for parameter in commands[path].params:
            if parameter.name in (name, name.removesuffix("_s")) and parameter.param_type_name == "option":
                return str(max(parameter.opts, key=len))
    return None


def _meaning(name: str, description: str | None) -> str:
    fallback = f"; else `{FALLBACKS[name]}`" if name in FALLBACKS else ""
    return f"{description or ''}{fallback}"


def _values(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """What may be set, in words."""
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    kind = kinds[0]
    if "$ref" in kind:
        kind = definitions[kind["$ref"].rpartition("/")[2]]
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    if kind.get("format") == "password":
        return "secret"
    name = {"array": "list", "boolean": "`true`, `false`", "string": "text"}.get(kind.get("type", ""), kind.get("type"))
    low, above, high = kind.get("minimum"), kind.get("exclusiveMinimum"), kind.get("maximum")
    if low is not None and high is not None:
        return f"{name}, {low:,} to {high:,}"
    bounds = [f"at least {low:,}"] if low is not None else [f"above {above:,}"] if above is not None else []
    bounds += [f"at most {high:,}"] if high is not None else []
    return ", ".join([name or "text", *bounds])


def _default(value: Any) -> str:
    if value is None or value == () or isinstance(value, SecretStr):
        return "unset"
    if isinstance(value, tuple):
        return f"`{','.join(str(item) for item in value)}`"
    return f"`{json.dumps(value).strip(chr(34))}`"


def _prose(text: str) -> str:
    """Text of a help page as Markdown: what looks like markup there is none, but for code between backticks."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = parts[at].replace("*", r"\*").replace("_", r"\_").replace("<", "&lt;").replace("[", r"\[")
    return "`".join(parts)


def _cell(text: str) -> str:
    return _prose(" ".join(text.split())).replace("|", r"\|")


def _anchor(path: str) -> str:
    return path.replace(" ", "-")
