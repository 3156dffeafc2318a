"""Converts a file of kubernetes-event-exporter or Alertmanager to rules: for `eventbus rules import`.

Values that cannot be converted are gaps, each with line and field. In doubt the rules send more, and never less.

Source: kubernetes-event-exporter `pkg/exporter/route.go`, `rule.go` and README; alertmanager `docs/configuration.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec

from eventbus.errors import ConfigError
from eventbus.model.event import EventType
from eventbus.model.matchers import OWN_PREFIX, Matcher, MatchType, label_name, label_problem, parse_matchers
from eventbus.notify.bounded_yaml import Document
from eventbus.notify.receivers.contract import Global
from eventbus.notify.rules import LINKS, InhibitRule, ReceiverRules, Route, field_cure, parse_rules, read_rules_text
from eventbus.util.yaml import dump_yaml

Value = dict[str, Any]

#: Where the values of `${VARIABLES}` are expected.
_SECRETS: Final = "/run/secrets"
_ANY_TYPE: Final = Matcher("type", MatchType.MATCHES, ".+")
_NEGATED: Final = {MatchType.EQUAL: MatchType.NOT_EQUAL, MatchType.MATCHES: MatchType.NOT_MATCHES}
#: Texts without a character that expressions treat in a special way.
_PLAIN: Final = re.compile(r"[\w/ -]+\Z", re.ASCII)
_GLOB: Final = re.compile(r"\*?[\w-]+\*?\Z", re.ASCII)

#: Conditions of the exporter's rules that are labels here, under the same name.
_CONDITIONS: Final = ("message", "kind", "namespace", "reason", "type", "component", "host")
#: Settings of the exporter's process. They have no counterpart, and need none.
_PROCESS: Final = frozenset(
    {"logLevel", "logFormat", "throttlePeriod", "maxEventAgeSeconds", "leaderElection", "kubeQPS", "kubeBurst"}
    | {"metricsNamePrefix", "omitLookup", "cacheSize", "kubeconfig"}
)
_EXPORT: Final = "an export, not a receiver: docs/sinks.md lists sinks; a webhook, or a package, can add this one"
_SINKS: Final[Mapping[str, str]] = dict.fromkeys(
    ("kafka", "kinesis", "firehose", "sqs", "sns", "pubsub", "bigquery", "eventbridge"), _EXPORT
) | {
    "elasticsearch": "an export, not a receiver: eventbus worker export --to elasticsearch+https://HOST/STREAM",
    "opensearch": "an export, not a receiver: eventbus worker export --to opensearch+https://HOST/STREAM",
    "loki": "an export, not a receiver: eventbus worker export --to loki+https://HOST",
    "file": "an export, not a receiver: eventbus worker export --to file:PATH",
    "stdout": "an export, not a receiver: eventbus worker export --to stdout:",
    "pipe": "an export, not a receiver: eventbus worker export --to stdout: | PROGRAM",
    "syslog": "an export, not a receiver: eventbus worker export --to stdout: | logger",
    "prometheus": "workers count events themselves: docs/metrics.md",
    "inMemory": "is for tests of the exporter; remove it",
    "opsgenie": "Opsgenie ends in April 2027: use pagerduty_configs, or apprise_configs with opsgenie://",
    "teams": "use apprise_configs with workflows://",
    "opscenter": "there is no such receiver: use webhook_configs",
}


class Converted(msgspec.Struct, frozen=True):
    """The text of a rules file, the name of the program whose file it was, and the gaps, a line each."""

    text: str
    origin: str
    gaps: tuple[str, ...]


def convert_file(path: Path) -> Converted:
    """Read and convert a file. Raises: ConfigError: it cannot be read, or is of neither program."""
    text, _ = read_rules_text(path)
    try:
        document = Document(text)
        root = document.value
        if not isinstance(root, dict) or not isinstance(root.get("route"), dict):
            raise ConfigError("line 1: the field route is missing")
        _ANY_TYPE.test()  # expressions need google-re2
        kinds = {key for each in _mappings(root.get("receivers")) for key in each}
        if {"match", "drop"} & root["route"].keys() or kinds & _SINKS.keys() | kinds & {"webhook", "slack"}:
            converter: _Exporter | _Alertmanager = _Exporter(document)
        else:
            converter = _Alertmanager(document)
        rules = converter.rules(root)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", cure=error.cure) from error
    gaps = [f"{path}: {gap}" for gap in converter.gaps]
    text = dump_yaml(_with_booleans(rules))
    try:
        parse_rules(text, "the converted rules")
    except ConfigError as error:
        gaps += str(error).splitlines()
    return Converted(text, converter.origin, tuple(gaps))


class _Converter:
    """Notes gaps with their lines."""

    origin = ""

    def __init__(self, document: Document) -> None:
        self.gaps: list[str] = []
        self._document = document

    def gap(self, path: str, problem: str) -> None:
        """Note that the value at *path* is missing in the rules, and the cure."""
        self.gaps.append(f"line {self._document.line_of(path)}: {path.removeprefix('$.')}: {problem}")

    def items(self, value: Any, path: str) -> Iterator[tuple[str, Value]]:
        """Yield the mappings of a list with their paths."""
        if value is not None and not isinstance(value, list):
            self.gap(path, "must be a list")
            return
        for number, item in enumerate(value or ()):
            if isinstance(item, dict):
                yield f"{path}[{number}]", item
            elif item is not None:
                self.gap(f"{path}[{number}]", "must be a mapping")

    def only(self, value: Value, path: str, known: Sequence[str]) -> None:
        """Note each field that is not *known*."""
        for field in value:
            if field not in known:
                self.gap(f"{path}.{field}", "there is no such field")


class _Exporter(_Converter):
    """A file of kubernetes-event-exporter.

    Its sibling routes are independent of each other, so the routes here continue. Its expressions match a part of a
    value. A rule under `drop` with one condition becomes a negated matcher; one with more becomes a route to a receiver
    without integrations. Each event is a message of its own, at once.
    """

    origin = "kubernetes-event-exporter"

    def rules(self, root: Value) -> Value:
        """Return the content of the rules file."""
        for field in root.keys() - _PROCESS - {"route", "receivers", "namespace"}:
            self.gap(f"$.{field}", "there is no such setting of rules")
        names = {str(each.get("name", "")) for each in _mappings(root.get("receivers"))}
        self._names = names
        self._none = next(name for name in ("none", "nowhere", "eventbus-none") if name not in names)
        routes = self._routes(root["route"], "$.route", typed=False)
        if namespace := _text(root.get("namespace")):
            routes = [_route([Matcher("namespace", MatchType.EQUAL, namespace)], self._none, routes=routes)]
        receivers = [self._receiver(each, path) for path, each in self.items(root.get("receivers"), "$.receivers")]
        return {
            "route": {"receiver": self._none, "group_by": ["..."], "group_wait": "0s", "routes": routes},
            "receivers": [{"name": self._none}, *receivers],
        }

    def _routes(self, node: Value, path: str, *, typed: bool) -> list[Value]:
        """Return the routes of one node of its tree. *typed*: a parent matches on `type`."""
        self.only(node, path, ("drop", "match", "routes"))
        negated: list[Matcher] = []
        dropping: list[Value] = []
        for at, rule in self.items(node.get("drop"), f"{path}.drop"):
            found = self._conditions(rule, at)
            if found is None:
                continue
            if "minCount" in rule:
                self.gap(f"{at}.minCount", "a route cannot drop by count: the rule is left out, so more is sent")
            elif not found:
                return []  # drops everything
            elif len(found) == 1:
                negated.append(Matcher(found[0].name, _NEGATED[found[0].type], found[0].value))
            else:
                dropping.append(_route(self._typed(found, typed), self._none, goes_on=False))
        routes: list[Value] = []
        all_matchers, all_counts = list(negated), 0
        for at, rule in self.items(node.get("match"), f"{path}.match"):
            matchers, min_count = self._conditions(rule, at, leave_out=True) or [], self._min_count(rule, at)
            all_matchers += matchers
            all_counts = max(all_counts, min_count)
            if receiver := _text(rule.get("receiver")):
                if receiver not in self._names:
                    self.gap(f"{at}.receiver", f"there is no receiver {receiver!r}")
                    continue
                routes.append(_route(self._typed([*negated, *matchers], typed), receiver, min_count=min_count))
        inner = typed or any(matcher.name == "type" for matcher in all_matchers)
        below = [
            route
            for at, child in self.items(node.get("routes"), f"{path}.routes")
            for route in self._routes(child, at, typed=inner)
        ]
        if below and (all_matchers or all_counts):
            below = [_route(all_matchers, self._none, min_count=all_counts, routes=below)]
        routes += below
        return [_route([], self._none, routes=[*dropping, *routes])] if dropping and routes else routes

    @staticmethod
    def _typed(matchers: list[Matcher], typed: bool) -> list[Matcher]:
        """Add a matcher that takes Normal events, too: a route without one takes Warnings only."""
        return matchers if typed or any(each.name == "type" for each in matchers) else [_ANY_TYPE, *matchers]

    def _min_count(self, rule: Value, path: str) -> int:
        text = _text(rule.get("minCount")) or "0"
        if not re.fullmatch(r"\d{1,9}", text):
            self.gap(f"{path}.minCount", "must be a number")
            return 0
        return int(text)

    def _conditions(self, rule: Value, path: str, *, leave_out: bool = False) -> list[Matcher] | None:
        """Return the conditions of a rule. One that cannot be converted is left out, or else the whole rule: None."""
        self.only(rule, path, (*_CONDITIONS, "labels", "annotations", "apiVersion", "minCount", "receiver", "name"))
        consequence = "the condition is left out" if leave_out else "the rule is left out"
        matchers: list[Matcher] = []
        is_complete = True
        for field in _CONDITIONS:
            if pattern := _text(rule.get(field)):
                matcher = self._matcher(field, pattern, f"{path}.{field}", leave_out=leave_out)
                is_complete = is_complete and matcher is not None
                matchers += [matcher] if matcher else []
        for field, value in rule["labels"].items() if isinstance(rule.get("labels"), dict) else ():
            at = f"{path}.labels.{field}"
            self.gap(at, f"labels of the object are not known: {OWN_PREFIX}{label_name(field)} is a label of the event")
            matcher = self._matcher(f"{OWN_PREFIX}{label_name(field)}", _text(value) or ".+", at, leave_out=leave_out)
            is_complete = is_complete and matcher is not None
            matchers += [matcher] if matcher else []
        for field in ("annotations", "apiVersion"):
            if rule.get(field):
                is_complete = False
                self.gap(f"{path}.{field}", f"events have no such label: {consequence}, so more is sent")
        return matchers if is_complete or leave_out else None

    def _matcher(self, label: str, pattern: str, path: str, *, leave_out: bool) -> Matcher | None:
        """Return the matcher of an expression, which matches a part of the value; None: it is a gap."""
        what = "the condition is left out" if leave_out else "the rule is left out"
        literal = pattern.removeprefix("^").removesuffix("$")
        if _PLAIN.match(literal) and (pattern == f"^{literal}$" or (label == "type" and literal in list(EventType))):
            return Matcher(label, MatchType.EQUAL, literal)
        matcher = Matcher(label, MatchType.MATCHES, f".*{pattern}.*" if _PLAIN.match(pattern) else f".*({pattern}).*")
        try:
            Matcher(label, MatchType.MATCHES, pattern).test()
            matcher.test()
        except ConfigError as error:
            if not leave_out or not _GLOB.match(pattern):  # a rule under drop that works now would send less
                self.gap(path, f"{error}: it never matched; {what}, so more is sent")
                return None
            matcher = Matcher(label, MatchType.MATCHES, pattern.replace("*", ".*"))
            self.gap(path, f"{pattern!r} is no regular expression, so it never matched: it is {matcher} now")
        return matcher

    def _receiver(self, receiver: Value, path: str) -> Value:
        """Return the receiver; without integrations if there is none for its system."""
        found: Value = {"name": _text(receiver.get("name")) or ""}
        for kind, config in receiver.items():
            at = f"{path}.{kind}"
            if kind == "name":
                continue
            if kind == "webhook" and isinstance(config, dict):
                found["webhook_configs"] = self._webhook(config, at)
            elif kind == "slack" and isinstance(config, dict):
                found["slack_configs"] = self._slack(config, at)
            else:
                self.gap(at, _SINKS.get(kind, "there is no such receiver"))
        return {name: value for name, value in found.items() if value != []}

    def _webhook(self, config: Value, path: str) -> list[Value]:
        self.only(config, path, ("endpoint", "headers", "layout", "tls"))
        target = self._secret(config, "endpoint", "url", path)
        if target is None:
            return []
        http: Value = {}
        for name, value in config["headers"].items() if isinstance(config.get("headers"), dict) else ():
            kind, _, credentials = (_text(value) or "").partition(" ")
            if name.lower() == "authorization" and credentials and "${" not in credentials:
                http["authorization"] = {"type": kind, "credentials": credentials}
            elif name.lower() == "authorization":
                self.gap(f"{path}.headers.{name}", "write it as http_config: {authorization: {credentials_file: FILE}}")
            elif name.lower() != "user-agent":
                self.gap(f"{path}.headers.{name}", "no header can be added, except Authorization")
        if config.get("layout"):
            self.gap(f"{path}.layout", "there are no templates: the body is Alertmanager's, version 4")
        tls: Value = config["tls"] if isinstance(config.get("tls"), dict) else {}
        files = {"caFile": "ca_file", "certFile": "cert_file", "keyFile": "key_file"}
        for name, value in tls.items():
            if name in files:
                http.setdefault("tls_config", {})[files[name]] = value
            elif name != "insecureSkipVerify" or value == "true":
                self.gap(f"{path}.tls.{name}", "certificates are always checked, by the host in the URL")
        return [target | ({"http_config": http} if http else {}) | {"send_resolved": False}]

    def _slack(self, config: Value, path: str) -> list[Value]:
        for field in config:
            if field not in ("token", "channel", "sentUpdateEvent"):
                self.gap(f"{path}.{field}", "there are no templates: messages have a form of their own")
        channel = _text(config.get("channel")) or ""
        if not channel or "{{" in channel:
            self.gap(f"{path}.channel", "must be one channel: the receiver sends nothing until you give slack_configs")
            return []
        target = self._secret(config, "token", "app_token", path)
        return [] if target is None else [target | {"channel": channel}]

    def _secret(self, config: Value, field: str, name: str, path: str) -> Value | None:
        """Return the value of *field* as *name*, or a file for it if it has variables; None: it is missing."""
        value = _text(config.get(field)) or ""
        if not value or "{{" in value:
            self.gap(f"{path}.{field}", "must be given, without templates: the receiver sends nothing")
            return None
        if "${" not in value:
            return {name: value}
        variables = re.findall(r"\$\{(\w+)\}", value)
        file = f"{_SECRETS}/{'-'.join(variables).lower() or field}"
        self.gap(f"{path}.{field}", f"variables are not replaced: write the value into {file}")
        return {f"{name}_file": file}


class _Alertmanager(_Converter):
    """A file of Alertmanager. Labels that events do not have become labels of the event itself."""

    origin = "Alertmanager"

    def rules(self, root: Value) -> Value:
        """Return the content of the rules file."""
        if "mute_time_intervals" in root:  # the former name
            root["time_intervals"] = [*root.get("time_intervals", ()), *root.pop("mute_time_intervals")]
        known = ("global", "route", "receivers", "inhibit_rules", "time_intervals")
        found = self._fields(root, "$", known)
        if isinstance(defaults := root.get("global"), dict):
            found["global"] = self._fields(defaults, "$.global", Global.__struct_encode_fields__)
        found["route"] = self._route(root["route"], "$.route")
        found["receivers"] = [
            self._receiver(each, path) for path, each in self.items(root.get("receivers"), "$.receivers")
        ]
        if "inhibit_rules" in root:
            found["inhibit_rules"] = [
                self._inhibit(rule, path) for path, rule in self.items(root["inhibit_rules"], "$.inhibit_rules")
            ]
        return found

    def _fields(self, value: Value, path: str, known: Sequence[str]) -> Value:
        """Return the *known* fields, and note the others."""
        for field in value:
            if field not in known:
                self.gap(f"{path}.{field}", f"there is no such field{field_cure(field)}")
        return {field: each for field, each in value.items() if field in known}

    def _route(self, route: Value, path: str) -> Value:
        self._move(route, path, "match", "match_re", "matchers")
        found = self._fields(route, path, Route.__struct_encode_fields__)
        if "matchers" in found:
            found["matchers"] = self._matchers(found["matchers"], f"{path}.matchers")
        if isinstance(found.get("group_by"), list):
            found["group_by"] = self._labels(found["group_by"], f"{path}.group_by")
        if "routes" in found:
            found["routes"] = [self._route(each, at) for at, each in self.items(found["routes"], f"{path}.routes")]
        return found

    def _inhibit(self, rule: Value, path: str) -> Value:
        for side in ("source", "target"):
            self._move(rule, path, f"{side}_match", f"{side}_match_re", f"{side}_matchers")
        converted = self._fields(rule, path, InhibitRule.__struct_encode_fields__)
        for field in ("source_matchers", "target_matchers"):
            converted[field] = self._matchers(converted.get(field, []), f"{path}.{field}")
        if isinstance(converted.get("equal"), list):
            converted["equal"] = self._labels(converted["equal"], f"{path}.equal", LINKS)
        return converted

    def _move(self, value: Value, path: str, equal: str, regex: str, matchers: str) -> None:
        """Turn the two old mappings into matchers, and keep their lines."""
        for field, kind in ((equal, MatchType.EQUAL), (regex, MatchType.MATCHES)):
            old = value.pop(field, None)
            if isinstance(old, dict):
                self._document.lines.setdefault(f"{path}.{matchers}", self._document.line_of(f"{path}.{field}"))
                value[matchers] = [
                    *_list(value.get(matchers)),
                    *(str(Matcher(name, kind, _text(text) or "")) for name, text in old.items()),
                ]
            elif old is not None:
                self.gap(f"{path}.{field}", "must be a mapping")

    def _matchers(self, texts: Any, path: str) -> list[str]:
        converted = []
        for text in _list(texts):
            try:
                matchers = parse_matchers(text)
            except ConfigError as error:
                self.gap(path, str(error))
                continue
            converted += [str(Matcher(self._label(each.name, path), each.type, each.value)) for each in matchers]
        return converted

    def _labels(self, names: list[Any], path: str, more: Sequence[str] = ()) -> list[str]:
        return [name if name in (*more, "...") else self._label(str(name), path) for name in names]

    def _label(self, name: str, path: str) -> str:
        if not label_problem(name):
            return name
        own = f"{OWN_PREFIX}{label_name(name)}"
        self.gap(path, f"{name} is no label of each event, so it is {own}: the events need the label {name}")
        return own

    def _receiver(self, receiver: Value, path: str) -> Value:
        hints = get_type_hints(ReceiverRules)
        found = self._fields(receiver, path, ReceiverRules.__struct_encode_fields__)
        for kind in found.keys() - {"name"}:
            known = get_args(hints[kind])[0].__struct_encode_fields__
            found[kind] = [self._fields(each, at, known) for at, each in self.items(found[kind], f"{path}.{kind}")]
        return found


def _route(
    matchers: Sequence[Matcher],
    receiver: str,
    *,
    min_count: int = 0,
    goes_on: bool = True,
    routes: Sequence[Value] = (),
) -> Value:
    found: Value = {"matchers": [str(matcher) for matcher in matchers], "receiver": receiver}
    if min_count > 1:
        found["min_count"] = min_count
    if goes_on:
        found["continue"] = True
    if routes:
        found["routes"] = list(routes)
    return {name: value for name, value in found.items() if value != []}


def _with_booleans(value: Any) -> Any:
    """Return *value* with booleans for the texts that `Document` read them as, because these are shown in quotes."""
    if isinstance(value, dict):
        return {name: _with_booleans(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_booleans(each) for each in value]
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _mappings(value: Any) -> list[Value]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _list(value: Any) -> list[str]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
