"""The rules file: Alertmanager's words, and `min_count`, `within`, `for` and `resolve_after`.

Unknown fields are errors. Each error names the line and the field.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from eventbus.errors import ConfigError
from eventbus.model.matchers import Matchers, label_problem, likely_mistake, matcher_problem
from eventbus.notify.bounded_yaml import MAX_BYTES, Document
from eventbus.notify.expect_rules import INDEXED, MAX_EXPECTED, MAX_UNINDEXED, ExpectRule
from eventbus.notify.fields import Duration, Secret, Strict, convert, decode_field
from eventbus.notify.receivers.alertmanager import AlertmanagerConfig
from eventbus.notify.receivers.apprise import AppriseConfig
from eventbus.notify.receivers.contract import Global, IntegrationConfig, Opening
from eventbus.notify.receivers.email import EmailConfig
from eventbus.notify.receivers.pagerduty import PagerDutyConfig
from eventbus.notify.receivers.slack import SlackConfig
from eventbus.notify.receivers.webhook import WebhookConfig
from eventbus.notify.time_intervals import NamedTimes

MAX_ROUTES: Final = 1000
#: Entries of all `…_configs`: each has a thread of its own while it sends.
MAX_INTEGRATIONS: Final = 200
#: Instructions of all expressions: they are compiled within seconds, and take at most some 100 MB.
MAX_PROGRAM_SIZE: Final = 1_000_000
#: Labels that two alerts of an inhibition may share besides `LABELS`: the links that the store knows.
LINKS: Final = ("node", "owner")
#: Groups by these labels are as many as objects, or more.
_UNBOUNDED: Final = frozenset({"name", "message", "..."})
#: Usual names of receivers without integrations.
DROPPING: Final = ("none", "null", "nowhere", "eventbus-none")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}\Z")
#: Fields of Alertmanager that are not supported, and the cure.
_CURES: Final[Mapping[str, str]] = {
    "match": "write it as matchers: ['reason=\"BackOff\"']",
    "match_re": "write it as matchers: ['reason=~\"Failed.*\"']",
    "source_match": "write it as source_matchers",
    "source_match_re": "write it as source_matchers with =~",
    "target_match": "write it as target_matchers",
    "target_match_re": "write it as target_matchers with =~",
    "service_key": "it belongs to the Events API v1; give the routing_key of an integration with v2",
    "templates": "templates are not supported; remove it",
}


class Route(Strict, frozen=True, kw_only=True):
    """A node of the tree. None: as the parent."""

    receiver: str | None = None
    group_by: tuple[str, ...] | None = None
    group_wait: Duration | None = None
    group_interval: Duration | None = None
    repeat_interval: Duration | None = None
    min_count: int | None = None
    within: Duration | None = None
    for_: Duration | None = msgspec.field(default=None, name="for")
    resolve_after: Duration | None = None
    matchers: Matchers = Matchers()
    mute_time_intervals: tuple[str, ...] = ()
    active_time_intervals: tuple[str, ...] = ()
    continue_: bool = msgspec.field(default=False, name="continue")
    routes: tuple[Route, ...] = ()


class ReceiverRules(Strict, frozen=True, kw_only=True):
    """One entry of `receivers`. One without integrations receives nothing."""

    name: str
    webhook_configs: tuple[WebhookConfig, ...] = ()
    slack_configs: tuple[SlackConfig, ...] = ()
    pagerduty_configs: tuple[PagerDutyConfig, ...] = ()
    email_configs: tuple[EmailConfig, ...] = ()
    alertmanager_configs: tuple[AlertmanagerConfig, ...] = ()
    apprise_configs: tuple[AppriseConfig, ...] = ()

    def with_defaults(self, defaults: Global) -> ReceiverRules:
        """Return a copy in which integrations have the defaults of the file."""
        return msgspec.structs.replace(
            self,
            slack_configs=tuple(config.with_defaults(defaults) for config in self.slack_configs),
            pagerduty_configs=tuple(config.with_defaults(defaults) for config in self.pagerduty_configs),
            email_configs=tuple(config.with_defaults(defaults) for config in self.email_configs),
        )

    def integrations(self) -> Iterator[tuple[str, IntegrationConfig]]:
        """Yield the configurations with their names, as `webhook[0]`."""
        for field in self.__struct_fields__[1:]:
            for number, config in enumerate(getattr(self, field)):
                yield f"{field.removesuffix('_configs')}[{number}]", config


class InhibitRule(Strict, frozen=True, kw_only=True):
    """While an alert fires that matches the source, alerts that match the target are not sent."""

    name: str = ""
    source_matchers: Matchers
    target_matchers: Matchers
    equal: tuple[str, ...] = ()


class Rules(Strict, frozen=True, kw_only=True):
    """A whole file."""

    route: Route
    receivers: tuple[ReceiverRules, ...]
    global_: Global = msgspec.field(default=Global(), name="global")
    inhibit_rules: tuple[InhibitRule, ...] = ()
    time_intervals: tuple[NamedTimes, ...] = ()
    expect: tuple[ExpectRule, ...] = ()

    def receiver(self, name: str) -> ReceiverRules | None:
        """Return the receiver of that name."""
        return next((each for each in self.receivers if each.name == name), None)


class ParsedRules(msgspec.Struct, frozen=True):
    """Valid rules, and warnings about likely mistakes, each with its line. *hash* identifies the text."""

    rules: Rules
    hash: str
    warnings: tuple[str, ...]


def load_rules(path: Path, opening: Opening | None = None) -> ParsedRules:
    """Read and check a file, and with *opening* open its receivers. Raises: ConfigError: all errors, a line each."""
    text, private = read_rules_text(path)
    return parse_rules(text, str(path), private=private, opening=opening)


def read_rules_text(path: Path) -> tuple[str, bool]:
    """Return the text of a file, cut beyond its bound, and if its owner alone can read it. Raises: ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            mode = os.fstat(file.fileno()).st_mode
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8") from None
    return text, not mode & (stat.S_IRGRP | stat.S_IROTH)


def parse_rules(
    text: str, source: str = "rules", *, private: bool = True, opening: Opening | None = None
) -> ParsedRules:
    """Parse and check the text of a file. *private*: only its owner can read it. *opening*: open its receivers as well.

    Raises: ConfigError.
    """
    secrets: list[str] = []
    program_size = 0

    def decode(kind: Any, value: Any) -> Any:
        nonlocal program_size
        if kind is Secret:
            secrets.append(value)
        decoded = decode_field(kind, value)
        if isinstance(decoded, Matchers):
            program_size += decoded.program_size
            if program_size > MAX_PROGRAM_SIZE:
                raise ValueError("the expressions up to here are too many or too large")
        return decoded

    try:
        document = Document(text)
        if not isinstance(document.value, dict):
            raise ConfigError("line 1: the file must have the fields route and receivers")
        rules = convert(document, Rules, decode, cure=field_cure)
        defaulted = tuple(receiver.with_defaults(rules.global_) for receiver in rules.receivers)
        rules = msgspec.structs.replace(rules, receivers=defaulted)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    check = _Check(rules, document, opening)
    check.all()
    if secrets and not private:
        check.fail("$.receivers", "the file holds secrets and others can read it: chmod 600, or use the …_file fields")
    if check.errors:
        raise ConfigError("; ".join(f"{source}: {each}" for each in check.errors))
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return ParsedRules(rules, digest, tuple(f"{source}: {each}" for each in check.warnings))


#: Their fields are suggested for a misspelled one.
_STRUCTS: Final = (
    *(Rules, Global, Route, ReceiverRules, InhibitRule, ExpectRule),
    *(WebhookConfig, SlackConfig, PagerDutyConfig, EmailConfig, AlertmanagerConfig, AppriseConfig),
)


def field_cure(field: str) -> str:
    """Return the end of the message about an unknown field: what to write instead; "" if there is nothing near."""
    if field in _CURES:
        return f": {_CURES[field]}"
    known = {name for struct in _STRUCTS for name in struct.__struct_encode_fields__} - {field}  # known elsewhere
    other = field.endswith("_configs")
    near = difflib.get_close_matches(field, known, 1, cutoff=0.85 if other else 0.6)
    if other and not near:
        return ": use apprise_configs, which has URLs for many services, or webhook_configs"
    return f"; did you mean {near[0]}?" if near else ""


class _Check:
    """Collects the mistakes that the types cannot find."""

    def __init__(self, rules: Rules, document: Document, opening: Opening | None) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self._rules = rules
        self._document = document
        self._opening = opening
        self._routes = 0
        self._receivers = {each.name: any(each.integrations()) for each in rules.receivers}
        self._used: set[str] = set()
        self._times = {each.name for each in rules.time_intervals}

    def all(self) -> None:
        """Check the whole file."""
        root = self._rules.route
        if root.matchers.all:
            self.fail("$.route.matchers", "the root matches everything: put matchers into its routes")
        if root.receiver is None:
            self.fail("$.route", "the root needs a receiver")
        if root.mute_time_intervals or root.active_time_intervals:
            self.fail("$.route", "the root cannot have time intervals: put them into its routes")
        if root.continue_:
            self.fail("$.route.continue", "the root cannot continue")
        self._route(root, "$.route", within=False)
        self._check_receivers()
        for number, rule in enumerate(self._rules.inhibit_rules):
            path = f"$.inhibit_rules[{number}]"
            self._check_matchers(rule.source_matchers, f"{path}.source_matchers")
            self._check_matchers(rule.target_matchers, f"{path}.target_matchers")
            for label in rule.equal:
                if label not in LINKS:
                    self._check_label(label, f"{path}.equal", f" (and the links {', '.join(LINKS)})")
        self._check_unique((each.name for each in self._rules.time_intervals), "$.time_intervals", "time interval")
        self._check_expected()

    def fail(self, path: str, problem: str) -> None:
        """Note an error."""
        self.errors.append(self._line(path, problem))

    def _warn(self, path: str, problem: str) -> None:
        self.warnings.append(self._line(path, problem))

    def _line(self, path: str, problem: str) -> str:
        return f"line {self._document.line_of(path)}: {path.removeprefix('$.')}: {problem}"

    def _route(self, route: Route, path: str, *, within: bool) -> None:
        self._routes += 1
        if self._routes == MAX_ROUTES + 1:
            self.fail(path, f"there are more than {MAX_ROUTES} routes")
        if self._routes > MAX_ROUTES:
            return
        if route.receiver is not None and route.receiver not in self._receivers:
            self.fail(
                f"{path}.receiver", f"there is no receiver {route.receiver!r}{_near(route.receiver, self._receivers)}"
            )
        elif route.receiver is not None:
            self._used.add(route.receiver)
            if not self._receivers[route.receiver] and route.receiver not in DROPPING:
                names = ", ".join(DROPPING)
                problem = (
                    f"{route.receiver!r} has no integrations, so nothing is sent: if you mean that, call it {names}"
                )
                self._warn(f"{path}.receiver", problem)
        self._check_matchers(route.matchers, f"{path}.matchers")
        for field in ("mute_time_intervals", "active_time_intervals"):
            for name in getattr(route, field):
                if name not in self._times:
                    self.fail(f"{path}.{field}", f"there is no time interval {name!r}{_near(name, self._times)}")
        self._check_grouping(route, path)
        for field in ("group_interval", "repeat_interval", "within", "resolve_after"):
            duration = getattr(route, field)
            if duration is not None and duration.ms == 0:
                self.fail(f"{path}.{field}", "must be longer than 0")
        if route.min_count is not None and route.min_count < 1:
            self.fail(f"{path}.min_count", "must be at least 1")
        within = within or route.min_count is not None
        if route.within is not None and not within:
            self.fail(f"{path}.within", "takes min_count as well")
        for number, child in enumerate(route.routes):
            self._route(child, f"{path}.routes[{number}]", within=within)

    def _check_grouping(self, route: Route, path: str) -> None:
        labels = route.group_by or ()
        for label in labels:
            if label != "...":
                self._check_label(label, f"{path}.group_by")
        if "..." in labels and len(labels) > 1:
            self.fail(f"{path}.group_by", "'...' stands for all labels, so it must stand alone")
        if len(set(labels)) < len(labels):
            self.fail(f"{path}.group_by", "a label is there twice")
        if unbounded := sorted(_UNBOUNDED & set(labels)):
            self._warn(f"{path}.group_by", f"a group for each {unbounded[0]}: there is no bound on their number")
        if route.repeat_interval and route.group_interval and route.repeat_interval.ms < route.group_interval.ms:
            self._warn(f"{path}.repeat_interval", "is shorter than group_interval, so group_interval is used")

    def _check_matchers(self, matchers: Matchers, path: str) -> None:
        for matcher in matchers.all:
            if problem := matcher_problem(matcher):
                self.fail(path, problem)
            elif mistake := likely_mistake(matcher):
                self._warn(path, mistake)

    def _check_label(self, label: str, path: str, also: str = "") -> None:
        if problem := label_problem(label, also):
            self.fail(path, problem)

    def _check_receivers(self) -> None:
        self._check_unique((each.name for each in self._rules.receivers), "$.receivers", "receiver")
        count = 0
        for number, receiver in enumerate(self._rules.receivers):
            path = f"$.receivers[{number}]"
            if not _NAME.match(receiver.name):
                self.fail(f"{path}.name", "must have 1 to 128 printable characters")
            elif receiver.name not in self._used:
                self._warn(path, f"no route uses the receiver {receiver.name!r}")
            for name, config in receiver.integrations():
                count += 1
                kind, _, rest = name.partition("[")
                self._check_integration(receiver, config, f"{path}.{kind}_configs[{rest}")
        if count > MAX_INTEGRATIONS:
            self.fail("$.receivers", f"there are more than {MAX_INTEGRATIONS} integrations")

    def _check_integration(self, receiver: ReceiverRules, config: IntegrationConfig, path: str) -> None:
        try:
            config.check()
            if self._opening is not None:
                self._warn_of_files(config, path)
                config.open(self._opening).close()
        except (ValueError, ConfigError) as error:
            field, _, problem = str(error).partition(": ")
            if f"{path}.{field}" in self._document.lines:
                path = f"{path}.{field}"
            else:
                problem = str(error)
            self.fail(path, f"{problem} (receiver {receiver.name!r})")

    def _warn_of_files(self, config: msgspec.Struct, path: str) -> None:
        """Warn of files with secrets that cannot be read here."""
        for field in config.__struct_fields__:
            value = getattr(config, field)
            if isinstance(value, msgspec.Struct):
                self._warn_of_files(value, f"{path}.{field}")
            elif field.endswith("_file") and value and not os.access(value, os.R_OK):
                self._warn(f"{path}.{field}", f"{value} cannot be read here and now, by this user")

    def _check_expected(self) -> None:
        if len(self._rules.expect) > MAX_EXPECTED:
            self.fail("$.expect", f"there are more than {MAX_EXPECTED} expected events")
        if sum(rule.index == ("", "") for rule in self._rules.expect) > MAX_UNINDEXED:
            problem = f"more than {MAX_UNINDEXED} have no matcher with = on {', '.join(INDEXED)}"
            self.fail("$.expect", f"{problem}: each event is compared with all of them")
        self._check_unique((each.name for each in self._rules.expect), "$.expect", "expected event")
        for number, rule in enumerate(self._rules.expect):
            path = f"$.expect[{number}]"
            if not _NAME.match(rule.name):
                self.fail(f"{path}.name", "must have 1 to 128 printable characters")
            self._check_matchers(rule.matchers, f"{path}.matchers")
            for field, problem in rule.problems():
                self.fail(f"{path}.{field}", problem)
            if "reason" not in rule.matchers.names():
                which = "event of its type" if "type" in rule.matchers.names() else "Normal event, also Started"
                self._warn(f"{path}.matchers", f"match every {which}: add a matcher on reason")

    def _check_unique(self, names: Iterator[str], path: str, noun: str) -> None:
        for name, times in Counter(names).items():
            if times > 1:
                self.fail(path, f"there are {times} of {noun} {name!r}")


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
