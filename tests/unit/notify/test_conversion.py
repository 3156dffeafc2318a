"""Files of other programs become rules: what they say is done, and what is missing is named."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from eventbus.cli.commands.rules import import_rules
from eventbus.errors import ConfigError
from eventbus.notify.conversion import Converted, convert_file
from eventbus.notify.routing import route_tree
from eventbus.notify.rules import parse_rules

#: The forms of the exporter's documentation: a dump, drops by one and by two conditions, a rule with labels, a subtree.
EXPORTER = """\
logLevel: error
maxEventAgeSeconds: 5
route:
  routes:
  - match:
    - receiver: dump
  - drop:
    - namespace: "test"
    - type: Normal
    match:
    - receiver: pager
  - drop:
    - type: Normal
      reason: Pulled|Created
    - kind: Job
      namespace: ^shop$
    match:
    - kind: "Pod|Deployment"
      receiver: slack
    - reason: ^Failed
    routes:
    - drop:
      - namespace: bank
      match:
      - receiver: hook
    - routes:
      - match:
        - type: Warning
          receiver: mail
receivers:
- name: dump
  elasticsearch: {hosts: ["http://localhost:9200"]}
- name: pager
  opsgenie: {apiKey: xxx}
- name: slack
  slack: {token: xoxb-1, channel: "#ops"}
- name: hook
  webhook: {endpoint: "https://hook.example.com", headers: {Authorization: Bearer abc}}
- name: mail
  file: {path: /tmp/dump}
"""

#: The forms of Alertmanager's documentation.
ALERTMANAGER = """\
global: {smtp_smarthost: 'localhost:25', smtp_from: 'alertmanager@example.org'}
templates: ['/etc/alertmanager/template/*.tmpl']
route:
  receiver: mails
  group_by: [alertname, service]
  group_wait: 30s
  routes:
  - matchers: [service=~"^(foo1|foo2)$"]
    routes:
    - match: {severity: critical}
      receiver: pager
  - match_re: {namespace: "shop-.*"}
    receiver: pager
    continue: true
inhibit_rules:
- source_match: {severity: critical}
  target_matchers: [severity="warning"]
  equal: [alertname, service]
receivers:
- name: mails
  email_configs: [{to: team@example.org, html: '{{ template "x" . }}'}]
- name: pager
  pagerduty_configs: [{routing_key: abc}]
  discord_configs: [{webhook_url: "https://example.com"}]
"""


def converted(folder: Path, text: str) -> Converted:
    path = folder / "given.yaml"
    path.write_text(text)
    return convert_file(path)


def exporter_receivers(node: dict[str, Any], labels: dict[str, str]) -> set[str]:
    """Route one event as the exporter does."""

    def matches(rule: dict[str, str]) -> bool:
        return all(re.search(rule[each], labels[each]) for each in rule if each != "receiver")

    if any(matches(rule) for rule in node.get("drop", ())):
        return set()
    taken = [rule for rule in node.get("match", ()) if matches(rule)]
    found = {rule["receiver"] for rule in taken if "receiver" in rule}
    if len(taken) == len(node.get("match", ())):
        found = found.union(*(exporter_receivers(each, labels) for each in node.get("routes", ())))
    return found


def test_converted_routes_take_the_same_events_as_the_exporters(tmp_path: Path) -> None:
    tree = route_tree(parse_rules(converted(tmp_path, EXPORTER).text).rules)
    given = yaml.safe_load(EXPORTER)["route"]
    values = {
        "type": ("Normal", "Warning"),
        "reason": ("Pulled", "FailedMount", "HasFailed"),
        "kind": ("Pod", "Job", "PodGroup", "Node"),
        "namespace": ("shop", "bank", "shop-test"),
    }
    receivers = set()
    for chosen in itertools.product(*values.values()):
        labels = dict(zip(values, chosen, strict=True))
        expected = exporter_receivers(given, labels)
        assert {route.receiver for route in tree.match(labels)} - {"none"} == expected, labels
        receivers |= expected
    assert receivers == {"dump", "pager", "slack", "hook", "mail"}


def test_receivers_of_the_exporter_are_converted_or_named_with_a_cure(tmp_path: Path) -> None:
    found = converted(tmp_path, EXPORTER)
    rules = parse_rules(found.text).rules
    configs = {each.name: [name for name, _ in each.integrations()] for each in rules.receivers}
    assert configs == {"none": [], "dump": [], "pager": [], "slack": ["slack[0]"], "hook": ["webhook[0]"], "mail": []}
    assert [gap.partition("given.yaml: ")[2].split(": ")[:2] for gap in found.gaps] == [
        ["line 32", "receivers[0].elasticsearch"],
        ["line 34", "receivers[1].opsgenie"],
        ["line 40", "receivers[4].file"],
    ]
    assert found.gaps[2].endswith("eventbus worker export --to file:PATH")


@pytest.mark.parametrize(
    ("old", "new", "gap"),
    [
        (
            'namespace: "test"',
            'namespace: "*test*"',
            "line 8: route.routes[1].drop[0].namespace: '*test*' is no regular",
        ),
        ('namespace: "test"', "minCount: 5", "line 8: route.routes[1].drop[0].minCount: a route cannot drop by count"),
        ("kind: Job", "apiVersion: beta", "line 15: route.routes[2].drop[1].apiVersion: events have no such label"),
        ("reason: ^Failed", "labels: {team: a}", "line 20: route.routes[2].match[1].labels.team: labels of the object"),
        ("reason: ^Failed", "reason: a(", "'a(' is no regular expression: "),
        ("receiver: dump", "receiver: duma", "line 6: route.routes[0].match[0].receiver: there is no receiver 'duma'"),
        ('"#ops"', "'@{{ .InvolvedObject.Labels.owner }}'", "receivers[2].slack.channel: must be one channel"),
        ("xoxb-1", '"${TOKEN}"', "slack.token: variables are not replaced: write the value into /run/secrets/token"),
        ("Authorization: Bearer abc", "X-Key: abc", "webhook.headers.X-Key: no header can be added"),
        ("logLevel", "clusterName", "line 1: clusterName: there is no such setting"),
    ],
)
def test_a_gap_is_named_with_its_line_and_field(tmp_path: Path, old: str, new: str, gap: str) -> None:
    assert old in EXPORTER
    found = converted(tmp_path, EXPORTER.replace(old, new, 1))
    assert any(gap in each for each in found.gaps), found.gaps
    parse_rules(found.text)


def test_a_drop_that_never_worked_drops_nothing_now(tmp_path: Path) -> None:
    found = converted(tmp_path, EXPORTER.replace('namespace: "test"', 'namespace: "*test*"', 1))
    assert any("it never matched; the rule is left out, so more is sent" in each for each in found.gaps), found.gaps
    tree = route_tree(parse_rules(found.text).rules)
    labels = {"namespace": "shop-test", "type": "Warning", "kind": "Node", "reason": "NodeNotReady"}
    assert "pager" in {route.receiver for route in tree.match(labels)}


def test_a_file_of_alertmanager_keeps_what_is_known_and_names_the_rest(tmp_path: Path) -> None:
    found = converted(tmp_path, ALERTMANAGER)
    tree = route_tree(parse_rules(found.text).rules)
    for labels, receivers in [
        ({"label_service": "foo1", "label_severity": "critical"}, ["pager"]),
        ({"label_service": "foo1"}, ["mails"]),
        ({"namespace": "shop-1"}, ["pager"]),
        ({"namespace": "bank"}, ["mails"]),
    ]:
        assert [route.receiver for route in tree.match(labels | {"type": "Warning"})] == receivers
    fields = [re.sub(r".*line \d+: (\S+): .*", r"\1", gap) for gap in found.gaps]
    assert {"templates", "receivers[0].email_configs[0].html", "receivers[1].discord_configs"} <= set(fields)
    assert any("severity is no label of each event, so it is label_severity" in gap for gap in found.gaps)


@pytest.mark.parametrize("text", ["", "[]", "route: []", "a: [", "receivers: []"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"given\.yaml: (line|this)"):
        converted(tmp_path, text)


@pytest.mark.parametrize("text", ["route: {match: 5, drop: [1], routes: {}}", "route: {match: [{kind: {a: b}}]}"])
def test_values_of_wrong_types_are_gaps_or_ignored(tmp_path: Path, text: str) -> None:
    assert converted(tmp_path, text).text.startswith("receivers:")


def test_the_command_prints_rules_and_gaps_and_with_strict_no_rules_with_gaps(tmp_path: Path) -> None:
    path = tmp_path / "exporter.yaml"
    path.write_text(EXPORTER)
    result = CliRunner().invoke(import_rules, [str(path)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 3)
    assert result.stdout.startswith("# Converted from a file of kubernetes-event-exporter.\n")
    result = CliRunner().invoke(import_rules, [str(path), "--strict"])
    assert (result.exit_code, result.stdout) == (1, "")
    path.write_text("route: {match: [{receiver: a}]}\nreceivers: [{name: a, slack: {token: b, channel: c}}]\n")
    result = CliRunner().invoke(import_rules, [str(path), "--strict"])
    assert (result.exit_code, result.stderr) == (0, "")
    parse_rules(result.stdout)
