"""The `thresher` commands that pages show, and whether the command line knows them, without running anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
from pages import Page, code_spans

from thresher.api.cli.app import app

_BREAK = re.compile(r"[;&|()\n]+")
_REDIRECTION = re.compile(r"[<>]+&?")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*?)\n.*?^\s*\2$", re.DOTALL | re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*|-[a-zA-Z](?![\w-]))")


@cache
def command_line() -> Any:
    return typer.main.get_command(app)


def invocations(text: str) -> Iterator[list[str]]:
    """The arguments of each `thresher` in a command of bash; substitutions inside quotes are looked into too."""
    for inner in re.findall(r"\$\(([^()]*)\)", text):
        yield from invocations(inner)
    text = _HERE.sub(r"\3", text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif _REDIRECTION.fullmatch(word):
            skip = True
            if words and words[-1].isdigit():
                words.pop()
        elif _BREAK.fullmatch(word):
            yield from _thresher(words)
            words = []
        else:
            words.append(word)


def _thresher(words: list[str]) -> Iterator[list[str]]:
    while words and (re.fullmatch(r"\w+=.*", words[0], re.DOTALL) or words[0] in ("do", "then", "time", "exec", "env")):
        words = words[1:]
    if not words:
        return
    program = words[0].rpartition("/")[2]
    if program == "thresher":
        yield words[1:]
    elif program in ("docker", "sudo", "nohup", "timeout") and "thresher" in words:
        yield words[len(words) - words[::-1].index("thresher") :]


def problem(arguments: list[str]) -> str | None:
    """What the parser says against a whole command line; None where it would run it."""
    return _problem(command_line(), None, "thresher", list(arguments))


def _problem(command: Any, parent: Any, path: str, arguments: list[str]) -> str | None:
    context = command.context_class(command, parent=parent, info_name=path.rpartition(" ")[2])
    try:
        values, left, order = command.make_parser(context).parse_args(arguments)
    except Exception as error:
        if hasattr(error, "format_message"):
            return f"{path}: {error.format_message()}"
        raise
    given = {parameter.name for parameter in order}
    if hasattr(command, "commands"):
        if not left:
            return None if given else f"{path} wants a command"
        name, *rest = left
        inner = command.commands.get(name)
        if inner is None:
            return f"{path} has no command {name!r}"
        return _problem(inner, context, f"{path} {name}", rest)
    if left:
        return f"{path} takes no more arguments: {' '.join(left)}"
    for parameter in command.params:
        if (
            parameter.param_type_name == "argument"
            and parameter.required
            and values.get(parameter.name) in (None, (), [])
        ):
            return f"{path} wants {parameter.name}"
    return None


def span_problem(text: str) -> str | None:
    """What is wrong with a command in running text, where `[…]`, `|`, `…` and names in capitals stand for others."""
    command, path = command_line(), "thresher"
    words = re.sub(r"[\[\]]", " ", text).split()[1:]
    while words and hasattr(command, "commands") and re.fullmatch(r"[a-z][a-z|-]*", words[0]):
        for name in words[0].split("|"):
            if name not in command.commands:
                return f"{path} has no command {name!r}"
        name = words.pop(0).rpartition("|")[2]
        command, path = command.commands[name], f"{path} {name}"
    known = {option for parameter in (*command.params, *command_line().params) for option in parameter.opts}
    known |= {option for parameter in command.params for option in parameter.secondary_opts} | {"--help", "-h"}
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", " ", " ".join(words))
    for option in _OPTION.findall(unquoted):
        if option not in known and not hasattr(command, "commands"):
            return f"{path} has no option {option}"
    return None


def shown_in(page: Page) -> Iterator[tuple[int, str, str | None]]:
    """Each `thresher` of a page: line, text, and what is wrong with it."""
    for command in page.commands:
        for arguments in invocations(command.text):
            yield command.line, command.text, problem(arguments)
    for block in page.blocks:
        for number, text in enumerate(block.text.split("\n")):
            if block.language in ("text", "indented", "") and text.startswith("thresher "):
                yield block.line + number, text, span_problem(text)
    for line, text in code_spans(page.source):
        if text.startswith("thresher "):
            yield line, text, span_problem(text)
