"""The rules file: accepted forms, and a report of each mistake with its line and field."""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventbus.cli.commands.rules import check_rules
from eventbus.errors import ConfigError
from eventbus.notify import routing
from eventbus.notify.bounded_yaml import MAX_BYTES, MAX_VALUES
from eventbus.notify.fields import Duration
from eventbus.notify.routing import Router, route_tree
from eventbus.notify.rules import MAX_ROUTES, load_rules, parse_rules
from eventbus.notify.time_intervals import next_border
from eventbus.util.text import printable

FILE = """\
route:
  receiver: chat
  group_by: [namespace, reason]
  routes:
  - matchers: ['namespace=~"shop-.*"', reason = BackOff]
    receiver: duty
    min_count: 5
    within: 10m
    mute_time_intervals: [night]
    continue: true
  - matchers: ['kind="Job"']
    routes:
    - matchers: ['type="Normal"']
      receiver: jobs
receivers:
- name: chat
  webhook_configs: [{url: "https://example.com/hook", max_alerts: 10}]
- {name: duty, webhook_configs: [{url: "https://duty.example"}]}
- {name: jobs, webhook_configs: [{url: "https://jobs.example"}]}
inhibit_rules:
- source_matchers: [kind="Node"]
  target_matchers: [kind="Pod"]
  equal: [node]
time_intervals:
- name: night
  time_intervals:
  - times: [{start_time: 22:00, end_time: 24:00}, {start_time: 00:00, end_time: 06:00}]
    weekdays: ['monday:friday']
    location: Europe/Berlin
"""


def receivers_of(text: str, **labels: str) -> list[str]:
    return [route.receiver for route in route_tree(parse_rules(text).rules).match(labels)]


def test_a_route_that_continues_lets_the_next_one_match_too() -> None:
    assert receivers_of(FILE, type="Warning", namespace="shop-1", reason="BackOff", kind="Job") == ["duty", "chat"]


def test_the_parent_takes_an_event_that_none_of_its_routes_takes() -> None:
    assert receivers_of(FILE, type="Warning", namespace="bank") == ["chat"]


def test_only_a_route_that_matches_on_the_type_takes_normal_events() -> None:
    assert receivers_of(FILE, type="Normal", namespace="shop-1", reason="BackOff") == []
    assert receivers_of(FILE, type="Normal", kind="Job") == ["jobs"]
    assert receivers_of(FILE, type="Warning", kind="Job") == ["chat"]


def test_options_are_inherited() -> None:
    first, jobs = route_tree(parse_rules(FILE).rules).routes
    assert (first.group_by, first.min_count, first.within_ms) == (("namespace", "reason"), 5, 600_000)
    assert (jobs.routes[0].group_by, jobs.routes[0].min_count) == (("namespace", "reason"), 1)


@pytest.mark.parametrize(
    "text",
    [
        FILE,
        FILE.replace("'kind=\"Job\"'", '\'kind="Job", name=~"web-.*"\''),
        "route: {receiver: a, routes: [{matchers: [kind=Pod]}]}\nreceivers: [{name: a}]",
    ],
    ids=["several labels", "a label with many values", "without a matcher on type"],
)
def test_routes_that_are_remembered_are_those_of_the_tree(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_REMEMBERED", 3)
    tree = route_tree(parse_rules(text).rules)
    router = Router(tree)
    values = {
        "namespace": ("shop-1", "bank"),
        "reason": ("BackOff", "Pulled"),
        "kind": ("Job", "Pod"),
        "name": ("a", "web-1"),
        "type": ("Normal", "Warning"),
    }
    for chosen in [*itertools.product(*values.values())] * 2:
        labels = dict(zip(values, chosen, strict=True))
        for _ in range(2):  # the second time they are known
            assert list(router.match(labels)) == tree.match(labels)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "min_count: 5",
            "min_cout: 5",
            "line 7: route.routes[0].min_cout: there is no such field; did you mean",
        ),
        ("receiver: duty", "receiver: dute", "line 6: route.routes[0].receiver: there is no receiver 'dute'; did you "),
        ("within: 10m", "within: ten", "line 8: route.routes[0].within: 'ten' is no duration: write it as 30s, 5m or"),
        ("within: 10m", "within: 10m\n    within: 5m", "line 9: $.route.routes[0].within: this field is there twice"),
        ('shop-.*"', 'shop-(.*"', "line 5: route.routes[0].matchers: 'shop-(.*' is no regular expression: missing )"),
        ("[night]", "[nigt]", "line 9: route.routes[0].mute_time_intervals: there is no time interval 'nigt'; did yo"),
        ('kind="Node"', 'knd="Node"', "line 21: inhibit_rules[0].source_matchers: there is no label 'knd'; did you m"),
        ("[node]", "[severity]", "line 23: inhibit_rules[0].equal: there is no label 'severity': there are type, rea"),
        ('"Normal"', '"normal"', 'line 13: route.routes[1].routes[0].matchers: type="normal": an event\'s type is N'),
        ("22:00", "2200", "line 27: time_intervals[0].time_intervals[0].times[0].start_time: '2200' is no time of day"),
        ("end_time: 24:00", "end_time: 21:00", "line 27: time_intervals[0].time_intervals[0].times[0]: start_time mu"),
        ("Berlin", "Berlyn", "line 29: time_intervals[0].time_intervals[0].location: 'Europe/Berlyn' is no time zone"),
        ("url:", "uri:", "line 17: receivers[0].webhook_configs[0].uri: there is no such field; did you mean url?"),
        ("{name: jobs", "{name: duty", "there are 2 of receiver 'duty'"),
        ("[namespace, reason]", "['...', reason]", "line 3: route.group_by: '...' stands for all labels"),
        ("route:\n", "route:\n  match: {a: b}\n", "line 2: route.match: there is no such field: write it as matchers:"),
        ("route:\n", "global: {smarthost: a}\nroute:\n", "smarthost: there is no such field; did you mean smtp_smart"),
        ("route:\n", "route: [\n", "this is not YAML"),
        ("route:\n", "route:\n\tgroup_by: []\n", "line 2: this is not YAML: there is a tab; indent with spaces"),
        ('kind="Job"', 'kind=="Job"', "'kind==\"Job\"': write one =, or put the value in quotes"),
        ("shop-.*", "(?!shop).*", "RE2 has no lookahead and no lookbehind; use a matcher with !~ or !="),
        (
            "monday:friday",
            "mon-fri",
            "'mon-fri' must be one of monday, tuesday, wednesday, thursday, friday, saturday, ",
        ),
        ("monday:friday", "mon-fri", "sunday, or a range as monday:friday"),
        ("max_alerts: 10", "max_alerts: ten", "line 17: receivers[0].webhook_configs[0].max_alerts: "),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_field(old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigError) as raised:
        parse_rules(FILE.replace(old, new, 1), "rules.yaml")
    assert message in str(raised.value)
    assert str(raised.value).startswith("rules.yaml: line ")


EXPECTED = """\
expect: [{name: e, every: 1h, object: shop/Job/j, matchers: [type="Warning"]}]
time_intervals:
"""


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        (
            "reason = BackOff",
            'reason="*Failed"',
            'line 5: route.routes[0].matchers: reason="*Failed" compares the',
        ),
        ('"Job"', '"job"', 'kind="job": most kinds begin with a capital letter'),
        ("[namespace, reason]", "[name]", "line 3: route.group_by: a group for each name"),
        (
            "inhibit_rules:\n",
            "- name: none\ninhibit_rules:\n",
            "line 20: receivers[3]: no route uses the receiver 'none'",
        ),
        (
            'jobs, webhook_configs: [{url: "https://jobs.example"}]',
            "jobs",
            "line 14: route.routes[1].routes[0].receiver: 'jobs' has no integrations, so nothing is sent",
        ),
        ("time_intervals:\n", EXPECTED, "matchers: match every event of its type: add a matcher on reason"),
        ("reason = BackOff", 'message=~"disk full"', "matches the whole message: put .* before and after"),
    ],
)
def test_a_near_miss_is_a_warning(old: str, new: str, warning: str) -> None:
    assert parse_rules(FILE).warnings == ()
    assert any(warning in each for each in parse_rules(FILE.replace(old, new, 1)).warnings)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        (
            'webhook_configs: [{url: "127.0.0.1:8099/chat"}]',
            "line 4: receivers[0].webhook_configs[0].url: the URL needs https://, or http://, before its host "
            "(receiver 'chat')",
        ),
        (
            'webhook_configs: [{url: "http://127.0.0.1:8099"}]',
            "line 4: receivers[0].webhook_configs[0].url: the URL must use https; "
            "EVENTBUS_WEBHOOK_ALLOW_HOSTS=127.0.0.1 permits it (receiver 'chat')",
        ),
        (
            'alertmanager_configs: [{url: "https://10.0.0.1"}]',
            "line 4: receivers[0].alertmanager_configs[0].url: 10.0.0.1 is where no request may go",
        ),
        (
            "webhook_configs: [{url: 'https://a.example', http_config: {tls_config: {ca_file: /none}}}]",
            "line 4: receivers[0].webhook_configs[0]: tls_config cannot be used",
        ),
    ],
)
def test_a_receiver_that_cannot_be_opened_is_a_mistake_with_line_and_field(
    configs: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(f"route: {{receiver: chat}}\nreceivers:\n- name: chat\n  {configs}\n")
    path.chmod(0o600)
    checked = CliRunner(env={"EVENTBUS_WEBHOOK_ALLOW_HOSTS": ""}).invoke(check_rules, [str(path)])
    assert isinstance(checked.exception, ConfigError)
    assert f"{path}: {message}" in str(checked.exception)


def test_all_mistakes_of_a_file_are_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("route: {receiver: a, routes: [{receiver: b}, {receiver: c}]}\nreceivers: [{name: a}]\n")
    with pytest.raises(ConfigError) as raised:
        load_rules(path)
    assert printable(str(raised.value)).count(f"{path}: line ") == 2
    assert str(raised.value) == printable(str(raised.value))


def test_a_file_with_a_secret_that_cannot_be_read_here_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("route: {receiver: a}\nreceivers:\n- {name: a, webhook_configs: [{url_file: /run/none/url}]}\n")
    checked = CliRunner().invoke(check_rules, [str(path)])
    assert "line 3: receivers[0].webhook_configs[0].url_file: /run/none/url cannot be read here" in checked.output
    assert checked.exit_code == 0


def test_a_file_is_bounded_before_its_tree_is_built() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
    )
    routes = "route:\n  receiver: a\n  routes:\n" + "  - {receiver: a}\n" * MAX_ROUTES + "receivers: [{name: a}]\n"
    large = "route: {receiver: a, routes: [{matchers: [%s]}]}\nreceivers: [{name: a}]"
    for text, message in [
        ("#" * (MAX_BYTES + 1), "larger than"),
        ("[" * 100_000, "nested more than"),
        (bomb, f"more than {MAX_VALUES} values"),
        ("a: &a [*a]", "nested more than"),
        (routes, f"more than {MAX_ROUTES} routes"),
        ("route: {routes: [" + "{}," * 100_000 + "]}", f"more than {MAX_VALUES} values"),
        (
            large % "]}, {matchers: [".join(["'reason=~\"[^a]{900}\"'," * 99] * 2),
            r"routes\[1\].matchers: the expressions up to here",
        ),
        (large % ("'reason=~\"a\"'," * 10_000), "there are 10000 matchers in one place, and may be 100"),
    ]:
        with pytest.raises(ConfigError, match=message):
            parse_rules(text)


def test_a_file_with_a_secret_must_be_private(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    secret = "http_config: {authorization: {credentials: hunter2}}"
    path.write_text(FILE.replace("max_alerts: 10", secret))
    path.chmod(0o600)
    assert "hunter2" not in repr(load_rules(path).rules)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_rules(path)
    path.write_text(FILE)
    os.chmod(path, 0o644)
    load_rules(path)


@pytest.mark.parametrize(
    ("text", "ms"), [("0", 0), ("30s", 30_000), ("1h30m", 5_400_000), ("1d2h3m4s5ms", 93_784_005), ("500ms", 500)]
)
def test_durations_are_those_of_prometheus(text: str, ms: int) -> None:
    assert Duration.parse(text).ms == ms


@pytest.mark.parametrize("text", ["", "1", "1m1h", "1.5h", "-1m", "1 m", "99999y", "1M", "m"])
def test_a_broken_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        Duration.parse(text)


def test_a_time_interval_follows_its_time_zone_through_the_change_of_the_clocks() -> None:
    night = parse_rules(FILE).rules.time_intervals[0]
    for at, inside in [
        (datetime(2026, 3, 27, 20, 59, tzinfo=UTC), False),  # Friday, 21:59 in Berlin
        (datetime(2026, 3, 27, 21, 0, tzinfo=UTC), True),
        (datetime(2026, 3, 27, 23, 0, tzinfo=UTC), False),  # Saturday 00:00
        (datetime(2026, 3, 30, 3, 59, tzinfo=UTC), True),  # Monday 05:59, now in summer time
        (datetime(2026, 3, 30, 4, 0, tzinfo=UTC), False),
    ]:
        assert night.contains(at) is inside
    assert next_border([night], datetime(2026, 3, 27, 20, 0, tzinfo=UTC)) == datetime(2026, 3, 27, 21, 0, tzinfo=UTC)
    assert next_border([night], datetime(2026, 3, 28, 0, 0, tzinfo=UTC)) == datetime(2026, 3, 29, 22, 0, tzinfo=UTC)


def test_days_of_a_month_count_from_its_end_too() -> None:
    days = FILE.replace("weekdays: ['monday:friday']", "days_of_month: ['-2:-1']").replace("Europe/Berlin", "UTC")
    last = parse_rules(days).rules.time_intervals[0]
    assert last.contains(datetime(2028, 2, 28, 23, 0, tzinfo=UTC))
    assert not last.contains(datetime(2028, 2, 27, 23, 0, tzinfo=UTC))
