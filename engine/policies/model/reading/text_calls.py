"""Calls that a model wrote as text, because its server did not parse them or it never learned better.

Read are the forms of Hermes and Qwen (`<tool_call>`), Qwen-Coder and Llama (`<function=…>`), GLM (`<arg_key>`), Llama
(`<|python_tag|>`, `[name(key="value")]`), Mistral (`[TOOL_CALLS]`), harmony with or without its special tokens, ReAct
(`Action:`), and JSON by itself or in a fence. Without a marker, JSON is a call only if it names a tool that exists:
prose may quote anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.engine.policies.model.reading.lenient import read_value
from thresher.engine.policies.model.reading.recovery import Written, as_call, json_types, repair_name
from thresher.engine.policy import ToolSpec
from thresher.engine.trajectory import canonical_arguments

_HARMONY = (
    r"(?:<\|start\|>)?(?:assistant\s*+)?(?:<\|channel\|>)?(?:(?:commentary|analysis)\s*+)?\bto=(?P<harmony>[\w.:-]++)\s*+"
    r"(?:<\|channel\|>\s*+(?:commentary|analysis))?\s*+(?:<\|constrain\|>)?\s*+(?:json|code)?\s*+(?:<\|message\|>)?\s*+"
    r"(?=\{|$)"
)
_MARKERS = re.compile(
    r"(?P<tag><\|?(?:tool_call|function_call|tool_calls)\|?>)|(?P<mistral>\[TOOL_CALLS\])|(?P<python><\|python_tag\|>)"
    r"|<function=(?P<function>[\w.:-]+)>|(?:^|\n)[ \t]*Action:[ \t]*(?P<action>[\w.:-]++)[^\S\n]*+\n\s*+"
    rf"Action Input:\s*+|{_HARMONY}"
)
# White space is matched possessively throughout: a model that is stuck writes thousands of blanks or line breaks, and
# every way of sharing them out between two of these would be tried.
_CLOSE = re.compile(
    r"\s*+(?:<(?:\|/?|/)(?:tool_call|function_call|tool_calls)\|?>|</function>|<\|(?:call|eom_id|eot_id|end)\|>)"
)
_CLOSING = re.compile(rf"(?<!\s)(?:{_CLOSE.pattern}|[^\S\n]*+\n\s*+```)")  # a run of blanks is tried at its start only
_MISTRAL_NAME = re.compile(r"\s*+([\w.:-]++)\s*+(?:\[CALL_ID\]\w++)?\s*+(?:\[ARGS\])?\s*+(?=\{)")
_FUNCTION = re.compile(r"\s*<function=([\w.:-]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_GLM = re.compile(r"\s*+([\w.:-]++)\s*+(?=<arg_key>)")
_GLM_PAIR = re.compile(r"\s*+<arg_key>([^<]*+)</arg_key>\s*+<arg_value>(.*?)</arg_value>", re.DOTALL)
_BEFORE = re.compile(r"\s*(?:```[\w-]*)?\s*")
_BRACKET = re.compile(r"(?:```[\w-]*\s*)?[{\[]")
_BETWEEN = re.compile(r"\s*+(?:```)?\s*+[;,]?\s*+(?=[{\[])")
_EMPTY_FENCE = re.compile(r"```[\w-]*\s*```")
_RAW_NAME = re.compile(r"[\"'](?:name|tool|tool_name|function)[\"']\s*:\s*[\"']([\w.:-]+)[\"']")
_RAW_ARGUMENTS = re.compile(r"[\"'](?:arguments|parameters|args|input)[\"']\s*:\s*")
_PYTHONIC = re.compile(r"(?:^|(?<=\n)|(?<=\[)|(?<=, ))[ \t]*([A-Za-z_][\w.]*)\(")
_LONGEST = 100_000
_TRIES = 64
"""How many markers or brackets that begin no call are tried as the start of one, and how many brackets as its end."""
_PARSES = 256
"""How often in one text Python's parser is asked."""
_NEST = 8
"""How many lists and `tool_calls` calls may be packed into."""


@dataclass(frozen=True, slots=True)
class Spotted:
    """What a text held.

    Attributes:
        text: the words around the calls.
        half: a call began and the text was cut before its end; it is not among `calls`.
        repairs: what was wrong with the JSON around names and arguments, in words.
    """

    calls: tuple[Written, ...]
    text: str
    half: bool = False
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    calls: tuple[Written, ...] = ()
    half: bool = False
    repairs: tuple[str, ...] = ()


def spot_calls(text: str, tools: Sequence[ToolSpec], *, cut: bool = False, marked_only: bool = False) -> Spotted:
    """The calls in a text, in order, and the words that remain.

    Args:
        cut: the text ends because it got too long: a call at its end that is not complete is `half`.
        marked_only: leave out calls that no marker announces, for text that is thought rather than said.
    """
    if len(text) > _LONGEST:
        return Spotted((), text)
    spotter = _Spotter(text, tools, cut)
    spans = list(spotter.marked())
    if not spans and not marked_only:
        spans = list(spotter.bare()) or list(spotter.pythonic())
    if not spans:
        return Spotted((), text.strip())
    kept, at = [], 0
    for span in spans:
        kept.append(text[at : span.start])
        at = span.end
    words = _EMPTY_FENCE.sub("", "".join([*kept, text[at:]])).strip()
    return Spotted(
        calls=tuple(call for span in spans for call in span.calls),
        text="" if words in ("[]", "```", "[ ]") else words,
        half=any(span.half for span in spans),
        repairs=tuple(dict.fromkeys(repair for span in spans for repair in span.repairs)),
    )


class _Spotter:
    def __init__(self, text: str, tools: Sequence[ToolSpec], cut: bool) -> None:
        self.text = text
        self.tools = tools
        self.cut = cut
        self.parses = 0

    def marked(self) -> Iterator[_Span]:
        """Calls behind a marker. They count whatever they name: the model meant to call something."""
        at, tries = 0, 0
        while tries < _TRIES and (match := _MARKERS.search(self.text, at)):
            span = self._behind(match)
            if span is None:
                at, tries = match.end(), tries + 1
                continue
            at = span.end
            while close := _CLOSE.match(self.text, at):
                at = close.end()
            yield _Span(match.start(), at, span.calls, span.half, span.repairs)

    def bare(self) -> Iterator[_Span]:
        """JSON that is a call of a tool that exists, wherever it stands."""
        at, tries = 0, 0
        while tries < _TRIES and (match := _BRACKET.search(self.text, at)):
            span = self._objects(match.start(), known=True)
            if span is None:
                at, tries = match.end(), tries + 1
                continue
            yield span
            at = span.end

    def pythonic(self) -> Iterator[_Span]:
        """`name(key="value")` on a line of its own, or in a list."""
        at = 0
        while self.parses < _PARSES and (match := _PYTHONIC.search(self.text, at)):
            at = match.end()
            found = self._python_call(match) if self._known(match[1]) else None
            if found is not None:
                yield found
                at = found.end

    def _behind(self, match: re.Match[str]) -> _Span | None:
        at = match.end()
        if name := match["harmony"] or match["action"]:
            bare = match["harmony"] and not re.search(r"<\||commentary|analysis", match[0])
            return None if bare and not self._known(name) else self._arguments(at, name)
        if match["function"]:
            return self._function(at, match["function"])
        if match["tag"]:
            if nested := _FUNCTION.match(self.text, at):
                return self._function(nested.end(), nested[1])
            if glm := _GLM.match(self.text, at):
                return self._pairs(glm.end(), glm[1], _GLM_PAIR)
        if match["mistral"] and (named := _MISTRAL_NAME.match(self.text, at)):
            return self._arguments(named.end(), named[1])
        return self._objects(at, known=False)

    def _function(self, at: int, name: str) -> _Span | None:
        """`<function=name>` with JSON, or with a tag for each parameter."""
        if self.text[at:].lstrip().startswith("{"):
            return self._arguments(at, name)
        return self._pairs(at, name, _PARAMETER)

    def _arguments(self, at: int, name: str) -> _Span | None:
        """Arguments as one JSON object, behind the name."""
        begin = _end(_BEFORE, self.text, at)
        if not self.text.startswith("{", begin):
            return _Span(at, len(self.text), half=True) if self.cut and begin == len(self.text) else None
        read = read_value(self.text, begin)
        if read is not None and not (read.open and self.cut):
            written = Written(name, _as_text(read.value))
            return _Span(at, _end(re.compile(r"\s*```"), self.text, read.end), (written,), repairs=read.repairs)
        end = self._closing(begin)
        if end is None and self.cut:
            return _Span(at, len(self.text), half=True)
        end = len(self.text) if end is None else end
        return _Span(at, end, (Written(name, self.text[begin:end].strip()),))

    def _pairs(self, at: int, name: str, pair: re.Pattern[str]) -> _Span | None:
        """Arguments as tags, each with a key and a value."""
        schema = self._schema(name)
        arguments: dict[str, Any] = {}
        while match := pair.match(self.text, at):
            key, value = match[1].strip(), match[2]
            kinds = json_types(schema, key)
            read = read_value(value) if kinds and "string" not in kinds else None
            whole = read is not None and not read.open and not value[read.end :].strip()
            arguments[key] = read.value if read is not None and whole else value
            at = match.end()
        closed = _CLOSE.match(self.text, at) is not None
        if self.cut and not closed:
            return _Span(at, len(self.text), half=True)
        if not closed and self.text[at:].lstrip().startswith("<"):
            return None
        return _Span(at, at, (Written(name, _as_text(arguments)),))

    def _objects(self, at: int, *, known: bool) -> _Span | None:
        """One JSON call, several in a row, or a list of them. `known`: only of tools that exist."""
        start = at
        calls: list[Written] = []
        repairs: list[str] = []
        while True:
            begin = _end(_BEFORE, self.text, at)
            if self.text[begin : begin + 1] not in ("{", "["):
                break
            read = read_value(self.text, begin)
            if read is None or (read.open and self.cut):
                unreadable = self._unreadable(begin, known)
                if unreadable is not None:
                    return _Span(start, unreadable.end, (*calls, *unreadable.calls), unreadable.half, tuple(repairs))
                break
            found = self._calls_of(read.value, known)
            if not found:
                break
            calls += found
            repairs += read.repairs
            at = read.end
            between = _BETWEEN.match(self.text, at)
            if between is None:
                break
            at = between.end()
        if not calls:
            return None
        return _Span(start, _end(re.compile(r"\s*```"), self.text, at), tuple(calls), repairs=tuple(repairs))

    def _unreadable(self, begin: int, known: bool) -> _Span | None:
        """A call whose JSON is broken: half of one if the text was cut, else passed on for the engine to refuse."""
        end = self._closing(begin)
        part = self.text[begin:end]
        name = _RAW_NAME.search(part)
        if known and not (name and self._known(name[1])):
            # What a server was forced to write begins with the call itself, and may end before the name.
            forced = self.cut and name is None and not self.text[:begin].strip() and len(part) < 80
            return _Span(begin, len(self.text), half=True) if forced else None
        if self.cut and end is None:
            return _Span(begin, len(self.text), half=True)
        arguments = _RAW_ARGUMENTS.search(part)
        if name is None or arguments is None:
            return None
        raw = part[arguments.end() :].strip()
        return _Span(begin, begin + len(part), (Written(name[1], raw),))

    def _calls_of(self, value: Any, known: bool, depth: int = 0) -> list[Written]:
        if depth > _NEST:
            return []
        if isinstance(value, list):
            found = [self._calls_of(item, known, depth + 1) for item in value]
            return [call for calls in found for call in calls] if all(found) else []
        if not isinstance(value, Mapping):
            return []
        inner = value.get("tool_calls")
        if isinstance(inner, list):
            return self._calls_of(inner, known, depth + 1)
        call = as_call(value)
        if call is None and len(value) == 1:
            (name, arguments), *_ = value.items()
            call = Written(name, arguments) if self._known(name) and isinstance(arguments, Mapping) else None
        if call is None or (known and not self._known(call.name)):
            return []
        return [Written(call.name, _as_text(call.arguments))]

    def _python_call(self, match: re.Match[str]) -> _Span | None:
        start = match.start(1)
        ends = [m.end() for m in re.finditer(r"\)", self.text[start : start + 8_000])][:_TRIES]
        for length in ends:
            self.parses += 1
            try:
                node = ast.parse(self.text[start : start + length].replace("\n", " "), mode="eval").body
                if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
                    return None
                arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
                required = self._schema(match[1]).get("required") or []
                if node.args:
                    if len(node.args) > 1 or len(required) != 1 or required[0] in arguments:
                        return None
                    arguments = {str(required[0]): ast.literal_eval(node.args[0]), **arguments}
                text = _as_text(arguments)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            rest = self.text[start + length :].lstrip(" \t")
            if rest[:1] not in ("", "\n", ",", "]", ";", "`"):
                return None
            end = _end(re.compile(r"\s*[,;]?"), self.text, start + length)
            return _Span(start, end, (Written(match[1], text),))
        return None

    def _closing(self, at: int) -> int | None:
        """Where the call that begins at `at` is closed by a tag or a fence; None if it is not."""
        match = _CLOSING.search(self.text, at)
        return match.start() if match else None

    def _known(self, name: Any) -> bool:
        return any(tool.name == repair_name(name, self.tools)[0] for tool in self.tools)

    def _schema(self, name: str) -> Mapping[str, Any]:
        resolved = repair_name(name, self.tools)[0]
        return next((tool.parameters for tool in self.tools if tool.name == resolved), {})


def _as_text(value: Any) -> Any:
    """Arguments as JSON text, as a server that parses calls would give them."""
    return canonical_arguments(value) if isinstance(value, Mapping) else value


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
