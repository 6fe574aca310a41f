"""Calls as models write them, made into calls that the engine can run.

Only what has one meaning is repaired. Everything else is passed on as it is: the engine's rejection tells the model
what is wrong, which is worth more than a guess. Each repair is a clause for the model to read, and counts as a
recovery.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.engine.policies.model.reading.lenient import read_value
from thresher.engine.policy import ToolSpec, ToolUse
from thresher.engine.trajectory import canonical_arguments

NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "recipient_name", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "params")
_PARALLEL = frozenset({"parallel", "multi_tool_use.parallel", "multi_tool_use"})
_SPECIAL = re.compile(r"<\|[^<>|]*\|>|</?tool_call>|</s>")
_LEADING = re.compile(r"^(?:\s*<\|[^<>|]*\|>)+\s*")
_FENCE = re.compile(r"^```[\w-]*+\s*+|(?<!\s)\s*+```$")
_IDENTIFIER = re.compile(r"[\w.#:-]+")
_NEST = 3
_SHOWN = 60
_LONGEST_NAME = 200
"""A longer name is none that was misspelt."""
_MOST_REPAIRED = 256
"""Calls of one reply that are repaired. Those behind them are passed on as they are: the engine runs far fewer."""


@dataclass(frozen=True, slots=True)
class Written:
    """A call as it was written: a name, and arguments in whatever shape they came."""

    name: Any
    arguments: Any


@dataclass(frozen=True, slots=True)
class Repaired:
    """Calls to run, and a clause for each thing that was not as it should be."""

    calls: tuple[ToolUse, ...]
    faults: tuple[str, ...]


def repair_calls(written: Sequence[Written], tools: Sequence[ToolSpec], *, cut: bool = False) -> Repaired:
    """Repair calls one by one.

    Args:
        cut: the reply ended because it was too long, so that the last call may have lost its end. If it did, it is
            left out: half a call is never run.
    """
    calls: list[ToolUse] = []
    faults: list[str] = []
    spread = _spread(written, faults)
    for number, call in enumerate(spread, 1):
        if number > _MOST_REPAIRED:
            calls.append(ToolUse(str(call.name)[:_SHOWN], ""))
            continue
        name, fault = repair_name(call.name, tools)
        if fault:
            faults.append(fault)
        schema = next((tool.parameters for tool in tools if tool.name == name), None)
        mended = repair_arguments(call.arguments, schema, cut=cut and number == len(spread))
        if mended is None:
            faults.append(f"the reply reached its length limit inside a call of {name}, which was not run: be brief")
            continue
        if mended.faults:
            faults.append(f"the arguments of {name} were mended ({', '.join(mended.faults)})")
        calls.append(ToolUse(name, mended.text))
    return Repaired(tuple(calls), tuple(faults))


def repair_name(name: Any, tools: Sequence[ToolSpec]) -> tuple[str, str | None]:
    """The tool that a name means, and what was wrong with the name; a name that could mean two is left alone."""
    if not isinstance(name, str):
        return ("" if name is None else str(name)[:_SHOWN]), None
    known = [tool.name for tool in tools]
    if name in known:
        return name, None
    found = _resolve(name, known)
    if found is None:
        return name.strip(), None
    return found, f"{name.strip()[:_SHOWN]!r} is no tool, it was taken as {found}"


def _resolve(name: str, known: Sequence[str]) -> str | None:
    if len(name) > _LONGEST_NAME:
        return None
    cleaned = name.split("<|", 1)[0] if not name.lstrip().startswith("<|") else _SPECIAL.sub(" ", name)
    cleaned = cleaned.strip().strip("\"'`()[]{}:,;. ")
    candidates = [cleaned, *re.split(r"[.:/\s]+", cleaned)]  # functions.search_corpus:0, to=functions/search_corpus
    for same in (str, _letters):
        found = {tool for tool in known for part in candidates if part and same(tool) == same(part)}
        if len(found) == 1:
            return found.pop()
        if found:
            return None
    word = _letters_of_last(candidates)
    if len(word) < 3:
        return None
    # The first word of one tool only: `functions.search` where there is no search but search_corpus.
    begun = [tool for tool in known if _letters(tool.split("_", 1)[0]) == word]
    if begun:
        return begun[0] if len(begun) == 1 else None
    return _misspelt(word, known)


def _misspelt(word: str, known: Sequence[str]) -> str | None:
    """The one tool that a typing error makes into `word`.

    The first letter has to be right, so that `unprune_chunks` never prunes, and every other tool has to be much
    farther away.
    """
    distances = sorted((_distance(word, _letters(tool)), tool) for tool in known)
    if not distances or len(word) < 5:
        return None
    best, tool = distances[0]
    allowed = 2 if len(word) >= 10 else 1
    clear = len(distances) == 1 or distances[1][0] >= best + 3
    return tool if best <= allowed and clear and tool[0].lower() == word[0] else None


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _letters_of_last(candidates: Sequence[str]) -> str:
    return next((letters for part in reversed(candidates) if (letters := _letters(part)) and not letters.isdigit()), "")


def _distance(one: str, other: str) -> int:
    """Edits between two words, a swap of neighbours being one (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        above, row, older = row, [i], before
        for j, b in enumerate(other, 1):
            best = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, older[j - 2] + 1)
            row.append(best)
        before = above
    return row[-1]


@dataclass(frozen=True, slots=True)
class RepairedArguments:
    """Arguments as text: as they were, or a JSON object that was repaired. `faults`: what was wrong, in words."""

    text: str
    faults: tuple[str, ...] = ()


def repair_arguments(
    arguments: Any, schema: Mapping[str, Any] | None, *, cut: bool = False
) -> RepairedArguments | None:
    """Arguments as JSON text; None when they were `cut` before their end.

    `schema` is the tool's JSON schema; None (an unknown tool) leaves out what needs it.
    """
    if arguments is None:
        return None if cut else RepairedArguments("")
    if not isinstance(arguments, str):
        if not isinstance(arguments, Mapping):
            return RepairedArguments(canonical_arguments(arguments))
        value: Any = arguments
        faults = ["they were an object instead of JSON text"]
    else:
        text = arguments.strip()
        if not text:
            return None if cut else RepairedArguments("")
        read = _whole_value(text, cut=cut)
        if read is None:
            return None if cut else RepairedArguments(arguments)
        value, faults = read
    value, more = _unwrapped(value, schema)
    faults += more
    if not isinstance(value, dict) or not faults:
        return RepairedArguments(arguments if isinstance(arguments, str) else canonical_arguments(arguments))
    return RepairedArguments(canonical_arguments(value), tuple(faults))


def _whole_value(text: str, *, cut: bool) -> tuple[Any, list[str]] | None:
    """The value that all of `text` is, decoded as often as it was encoded."""
    faults: list[str] = []
    for _ in range(_NEST):
        bare = _LEADING.sub("", _FENCE.sub("", text))
        read = read_value(bare)
        if read is None or (read.open and cut):
            return None
        rest = bare[read.end :].strip()
        if _SPECIAL.sub("", rest).strip("}]) \t\r\n;`"):
            return None  # there is more than one value: nobody knows which was meant
        if bare != text or rest:
            faults.append("text around the object")
        faults += read.repairs
        if not isinstance(read.value, str) or read.value.lstrip()[:1] not in ("{", '"'):
            return read.value, list(dict.fromkeys(faults))
        faults.append("they were encoded twice")
        text = read.value.strip()
    return None


def _unwrapped(value: Any, schema: Mapping[str, Any] | None) -> tuple[Any, list[str]]:
    """Arguments inside a second call, and fields that hold JSON as text where the tool wants the thing itself."""
    if schema is None or not isinstance(value, Mapping):
        return value, []
    properties: Mapping[str, Any] = schema.get("properties") or {}
    faults: list[str] = []
    inner = [key for key in ARGUMENT_KEYS if isinstance(value.get(key), Mapping) and key not in properties]
    others = {key for key in value if key not in NAME_KEYS and key not in ("type", "id")}
    if len(inner) == 1 and others == set(inner) and not any(key in properties for key in value):
        value = value[inner[0]]
        faults.append("they stood inside another object")
    made = dict(value)
    for key, field in value.items():
        if not isinstance(field, str) or key not in properties:
            continue
        kinds = json_types(schema, key)
        if "string" in kinds:
            continue
        read = read_value(field) if field.lstrip()[:1] in ("[", "{") else None
        if read is not None and not read.open and not field[read.end :].strip():
            if ("array" in kinds and isinstance(read.value, list)) or (
                "object" in kinds and isinstance(read.value, dict)
            ):
                made[key] = read.value
                faults.append(f"{key} was JSON text")
        elif "array" in kinds and _IDENTIFIER.fullmatch(field):
            made[key] = [field]
            faults.append(f"{key} was one item instead of a list")
    return made, faults


def json_types(schema: Mapping[str, Any], key: str) -> set[str]:
    """The JSON types that a property of a schema may have; empty where it does not say."""
    return _kinds((schema.get("properties") or {}).get(key), schema)


def _kinds(field: Any, schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a field may have."""
    if not isinstance(field, Mapping):
        return set()
    if "$ref" in field:
        name = str(field["$ref"]).rsplit("/", 1)[-1]
        return _kinds((schema.get("$defs") or {}).get(name), {})
    kinds: set[str] = set()
    declared = field.get("type", ())
    kinds.update([declared] if isinstance(declared, str) else declared)
    for option in [*field.get("anyOf", ()), *field.get("oneOf", ())]:
        kinds |= _kinds(option, schema)
    return kinds


def _spread(written: Sequence[Written], faults: list[str]) -> list[Written]:
    """Calls that were packed into one (`multi_tool_use.parallel`), each by itself."""
    spread: list[Written] = []
    for call in written:
        name = str(call.name).removeprefix("functions.").strip()
        if name not in _PARALLEL:
            spread.append(call)
            continue
        arguments = call.arguments
        if isinstance(arguments, str):
            read = read_value(arguments)
            arguments = read.value if read else None
        uses = arguments.get("tool_uses") if isinstance(arguments, Mapping) else None
        inner = [found for use in uses if (found := as_call(use))] if isinstance(uses, list) else []
        if not inner or not isinstance(uses, list) or len(inner) != len(uses):
            spread.append(call)
            continue
        faults.append(f"{name} is no tool, the {len(inner)} calls in it were run")
        spread += inner
    return spread


def as_call(value: Any) -> Written | None:
    """The call that a JSON object describes, in any of the shapes that models use; None if it is none."""
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("function"), Mapping):
        return as_call(value["function"])
    names = [key for key in NAME_KEYS if isinstance(value.get(key), str)]
    arguments = [key for key in ARGUMENT_KEYS if key in value]
    if len(names) != 1 or len(arguments) > 1:
        return None
    if not arguments:
        return Written(value[names[0]], {}) if set(value) <= {names[0], "type", "id"} else None
    return Written(value[names[0]], value[arguments[0]])
