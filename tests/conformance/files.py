"""Scenarios as files, for any language to write.

`NNN_name.in.jsonl` begins with an optional line of options and has one event a line; `NNN_name.out.jsonl` has one
decision a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from eventbus.model.event import Event
from eventbus.settings import AggregateKey, Options, SpamKey
from tests.conformance.driver import SKIPPED, Action, Decision, Patch
from tests.conformance.scenario import START_MS, Scenario, Step, complete, make_options

_EPOCH = "1970-01-01T00:00:00Z"
_OPTION_NAMES = dict(message="aggregate_message")
_OPTION_KINDS: dict[str, Any] = dict(spam_key=SpamKey, aggregate_key=AggregateKey)
_SPAM_KEY_WORDS = dict(type="object+type", reason="object+type+reason")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: Asks the recorder of vectors to write more; says nothing about the rules.
_NOT_RULES = {"full"}


class MalformedScenario(Exception):
    """The files do not make a scenario. Cure: mend the files; the message says which."""


def read_scenario(path: Path) -> Scenario:
    """Read *path* (an `.in.jsonl`) and the `.out.jsonl` beside it.

    Raises: MalformedScenario: a file is missing or not of the format.
    """
    name = path.name.removesuffix(".in.jsonl")
    try:
        lines = _json_lines(path)
        wanted = [decision_from_json(line) for line in _json_lines(path.with_name(f"{name}.out.jsonl"))]
        given = lines.pop(0)["options"] or {} if lines and "options" in lines[0] else {}
        options = options_from_json(given, len(lines))
        events = [_input(line) for line in lines]
    except Exception as error:  # whatever is wrong with one file, the others run
        raise MalformedScenario(f"{type(error).__name__}: {error}") from error
    if len(events) != len(wanted):
        raise MalformedScenario(f"{len(events)} events but {len(wanted)} decisions")
    return Scenario(name, options, tuple(Step(t, e, want, d) for (t, e, d), want in zip(events, wanted, strict=True)))


def write_scenario(scenario: Scenario, directory: Path) -> None:
    """Write the two files of *scenario* into *directory*, in the form `read_scenario` reads."""
    inputs: list[dict[str, Any]] = []
    if options := options_to_json(scenario.options):
        inputs.append({"options": options})
    for step in scenario.steps:
        line: dict[str, Any] = {"t_ms": step.t_ms, "event": _without_nulls(msgspec.to_builtins(step.event))}
        inputs.append(line | ({"delete": ["*"]} if step.delete else {}))
    _write_lines(directory / f"{scenario.name}.in.jsonl", inputs)
    _write_lines(directory / f"{scenario.name}.out.jsonl", [decision_to_json(step.want) for step in scenario.steps])


def options_from_json(line: Mapping[str, Any], events: int = 0) -> Options:
    """The first line's options, for a scenario of so many *events*.

    What this runner has no rule for is named on standard error and ignored.

    Raises: ConfigError: an option is out of bounds, and no other one decides the same.
    """
    given: dict[str, Any] = {}
    for name, value in line.items():
        field = _OPTION_NAMES.get(name, name)
        if field not in Options.__struct_fields__:
            if name not in _NOT_RULES:
                print(f"option {name!r} is unknown here and ignored", file=sys.stderr)
        elif value:
            given[field] = _option_value(field, value)
    return make_options(events, **given)


def options_to_json(options: Options) -> dict[str, Any]:
    """Only what differs from the defaults. A 0 would be the default: -1 decides the same."""
    short = {field: name for name, field in _OPTION_NAMES.items()}
    values = {field: getattr(options, field) for field in Options.__struct_fields__ if field != "report_suppressed"}
    values |= {field: -1 for field in ("burst", "qps") if values[field] == 0}
    return {short.get(f, f): v for f, v in values.items() if v != getattr(Options(), f)}


def decision_from_json(line: Mapping[str, Any]) -> Decision:
    """One line of the output."""
    if line["skip"]:
        return SKIPPED
    return Decision(
        count=line["count"],
        message=line["message"],
        name=line["name"],
        namespace=line["namespace"],
        first=_time_from_json(line["first_ts"]),
        last=_time_from_json(line["last_ts"]),
        action=Action(line["action"]),
        aggregated=line["aggregated"],
        patch=_patch_from_json(line["patch"]),
    )


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """One line of the output. Times have whole seconds, as Kubernetes writes them."""
    if decision.skip:
        return {"skip": True}
    return {
        "skip": False,
        "count": decision.count,
        "message": decision.message,
        "action": str(decision.action),
        "name": decision.name,
        "namespace": decision.namespace,
        "first_ts": time_to_json(decision.first),
        "last_ts": time_to_json(decision.last),
        "aggregated": decision.aggregated,
        "patch": patch_to_json(decision.patch),
    }


def patch_to_json(patch: Patch | None) -> dict[str, Any] | None:
    """The merge patch: what equals the zero value (0, the first second of 1970, "") is left out."""
    if patch is None:
        return None
    found: dict[str, Any] = {}
    if patch.count:
        found["count"] = patch.count
    if (last := time_to_json(patch.last)) != _EPOCH:
        found["lastTimestamp"] = last
    if patch.message:
        found["message"] = patch.message
    return found


def time_to_json(time: datetime | None) -> str | None:
    """RFC 3339 in UTC with whole seconds, the rest cut off."""
    return None if time is None else time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _patch_from_json(patch: Mapping[str, Any] | None) -> Patch | None:
    if patch is None:
        return None
    last = _time_from_json(patch.get("lastTimestamp", _EPOCH))
    return Patch(patch.get("count", 0), last, patch.get("message", ""))


def _time_from_json(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _input(line: Mapping[str, Any]) -> tuple[int, Event, bool]:
    core = _without_nulls(line["event"])
    # Not codec.from_core: it refuses NUL in texts, which recorded vectors hold and rules must bear.
    event = msgspec.convert({"count": 1} | core, Event)
    delete = line.get("delete") or []
    if delete not in ([], ["*"]):
        raise ValueError(f"delete {delete!r} is not [] or ['*']")
    return line["t_ms"], complete(event, START_MS + line["t_ms"]), bool(delete)


def _option_value(field: str, value: Any) -> Any:
    if field == "spam_key":
        value = _SPAM_KEY_WORDS.get(value, value)
    if field in _OPTION_KINDS:
        return _OPTION_KINDS[field](value)
    return tuple(value) if isinstance(value, list) else value


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}


def _json_lines(path: Path) -> list[dict[str, Any]]:
    # Not splitlines(): a message may hold U+2028, which ends a line there but not in JSON.
    lines = [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    return [_as_go_reads(json.loads(line)) if _SURROGATE.search(line) else json.loads(line) for line in lines]


def _as_go_reads(value: Any) -> Any:
    """*value* with U+FFFD for every half of a surrogate pair, which Python's JSON lets stand."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_as_go_reads(inner) for inner in value]
    if isinstance(value, dict):
        return {_as_go_reads(name): _as_go_reads(inner) for name, inner in value.items()}
    return value


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
