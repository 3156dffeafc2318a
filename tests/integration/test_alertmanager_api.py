"""Alertmanager's API v2 on an API worker: its answers beside a real Alertmanager's, a real amtool, and rights.

The groups of the web page, which are made of the same state, are tested here, too.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from eventbus.api.alertmanager import alerts as alerts_module
from eventbus.broker.bus import Bus, open_bus
from eventbus.model.kinds import EVENT
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.builders import make_event, make_reference
from tests.support.alertmanager_server import alertmanager_server, find_program
from tests.support.api_in_process import serving
from tests.support.api_worker import ApiWorker, Reply, api_worker
from tests.support.notifying import notifying
from tests.waiting import eventually

RULES = """
route: {receiver: team, group_by: [namespace, reason], group_wait: 0s, group_interval: 1s, routes: [
  {receiver: infra, matchers: ['kind="Node"'], continue: true}, {receiver: team}]}
inhibit_rules:
- {source_matchers: ['kind="Node"'], target_matchers: ['reason="Evicted"']}
receivers: [{name: team}, {name: infra}]
"""
USERS = 'admin,admin,1,"system:masters"\nvic,vic,2\ned,ed,3\nnobody,nobody,4\n'
GRANTS = ("--grant", "view=user:vic@shop", "--grant", "edit=user:ed@shop")
ROOT = "/alertmanager/api/v2"
JSON = "application/json"


@pytest.fixture(scope="module")
def bus(embedded_url: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix="alertmanager-api"))


@pytest.fixture(scope="module")
def worker(bus: Bus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorker]:
    """An API worker, of a bus with a notifier and five Warnings: one of another namespace, one inhibited."""
    with ObjectStore.of(bus) as store:
        for kind, namespace, name, reason in (
            ("Pod", "shop", "web-0", "BackOff"),
            ("Pod", "shop", "web-1", "BackOff"),
            ("Pod", "shop", "web-2", "Evicted"),
            ("Pod", "bank", "till-0", "BackOff"),
            ("Node", "", "node-1", "NodeNotReady"),
        ):
            about = make_reference(kind=kind, namespace=namespace, name=name)
            event = make_event(involved_object=about, type="Warning", reason=reason, message=f"{name} <b>fails</b>")
            store.objects(EVENT).create(event)
    folder = tmp_path_factory.mktemp("worker")
    (folder / "tokens.csv").write_text(USERS)
    users = ("--token-file", str(folder / "tokens.csv"), *GRANTS)
    with notifying(bus, RULES), api_worker(bus.url, bus.prefix, folder, *users) as worker:
        eventually(lambda: len(get(worker, "alerts", inhibited="false")) == 4)
        eventually(lambda: get(worker, "receivers"))
        yield worker


def ask(worker: ApiWorker, method: str, path: str, body: Any = None, user: str = "admin", **query: Any) -> Reply:
    """Send a request as *user*. *query*: the values of a list are sent one by one."""
    path = f"{ROOT}/{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
    return worker.call(method, path, body, Authorization=f"Bearer {user}", Content_Type=JSON)


def get(worker: ApiWorker, path: str, **query: Any) -> Any:
    reply = ask(worker, "GET", path, **query)
    assert reply.status == 200, reply.data
    return reply.json


def silence(*matchers: tuple[str, str], hours: float = 1, **changes: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    found = [{"name": name, "value": value, "isRegex": False, "isEqual": True} for name, value in matchers]
    times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=hours)).isoformat()}
    return {"matchers": found, **times, "createdBy": "someone", "comment": "maintenance", **changes}


def add(worker: ApiWorker, body: dict[str, Any], user: str = "admin") -> str:
    reply = ask(worker, "POST", "silences", body, user)
    assert reply.status == 200, reply.data
    return str(reply.json["silenceID"])


@pytest.fixture(autouse=True)
def no_silence(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "worker" in request.fixturenames:
        worker = request.getfixturevalue("worker")
        for each in get(worker, "silences"):
            ask(worker, "DELETE", f"silence/{each['id']}")


def names(alerts: list[dict[str, Any]]) -> list[str]:
    return sorted(alert["labels"]["name"] for alert in alerts)


# Beside a real Alertmanager


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., tuple[int, bytes]]]:
    """Yield a function that asks a real Alertmanager."""
    with alertmanager_server(tmp_path_factory.mktemp("alertmanager")) as url:

        def asked(method: str, path: str, body: Any = None) -> tuple[int, bytes]:
            data = None if body is None else json.dumps(body).encode()
            request = Request(f"{url}/api/v2/{path}", data, {"Content-Type": JSON}, method=method)
            with urlopen(request, timeout=30) as reply:
                return reply.status, reply.read()

        yield asked


def shape(value: Any) -> Any:
    """Return the names and types of a JSON value; times, UUIDs and states by their form, labels as a type."""
    if isinstance(value, dict):
        return {key: "labels" if key in ("labels", "annotations") else shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, str):
        for form in (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "active"):
            if re.fullmatch(form, value):
                return form
    return type(value).__name__


def test_each_answer_has_the_fields_of_a_real_alertmanager(
    worker: ApiWorker, real: Callable[..., tuple[int, bytes]]
) -> None:
    real("POST", "alerts", [{"labels": {"alertname": "BackOff"}, "annotations": {"summary": "s"}}])
    body = silence(("alertname", "other"))
    ids = {"ours": add(worker, body), "real": json.loads(real("POST", "silences", body)[1])["silenceID"]}
    for path in ("status", "receivers", "alerts", "alerts/groups", "silences", "silence/{}"):
        ours, theirs = get(worker, path.format(ids["ours"])), json.loads(real("GET", path.format(ids["real"]))[1])
        assert shape(ours) == shape(theirs), path
    reply, (code, data) = ask(worker, "DELETE", f"silence/{ids['ours']}"), real("DELETE", f"silence/{ids['real']}")
    assert (reply.status, reply.data) == (code, data) == (200, b"")


# Alerts


def test_an_alert_has_its_state_receivers_and_times(worker: ApiWorker) -> None:
    (alert,) = get(worker, "alerts", filter='name="web-0"')
    assert alert["labels"]["alertname"] == "BackOff"
    assert alert["annotations"]["message"] == "web-0 <b>fails</b>"
    assert alert["receivers"] == [{"name": "team"}]
    assert alert["status"] == {"inhibitedBy": [], "silencedBy": [], "state": "active"}
    assert alert["startsAt"] <= alert["updatedAt"] < alert["endsAt"]
    (node,) = get(worker, "alerts", filter='kind="Node"')
    assert node["receivers"] == [{"name": "infra"}, {"name": "team"}]
    (evicted,) = get(worker, "alerts", filter="reason=Evicted")
    assert evicted["status"] == {"inhibitedBy": [node["fingerprint"]], "silencedBy": [], "state": "suppressed"}


def test_alerts_are_selected_by_matchers_receiver_and_state(worker: ApiWorker) -> None:
    silenced = add(worker, silence(("name", "web-1")))
    assert names(get(worker, "alerts")) == ["node-1", "till-0", "web-0", "web-1", "web-2"]
    assert names(get(worker, "alerts", filter=['reason=~"Back.*"', 'namespace!="bank"'])) == ["web-0", "web-1"]
    assert names(get(worker, "alerts", receiver="in.*")) == ["node-1"]
    assert names(get(worker, "alerts", receiver="in")) == []
    assert names(get(worker, "alerts", silenced="false")) == ["node-1", "till-0", "web-0", "web-2"]
    assert names(get(worker, "alerts", inhibited="false")) == ["node-1", "till-0", "web-0", "web-1"]
    suppressed = get(worker, "alerts", active="false")
    assert names(suppressed) == ["web-1", "web-2"]
    assert [silenced] in [alert["status"]["silencedBy"] for alert in suppressed]


def test_groups_have_the_selected_alerts(worker: ApiWorker) -> None:
    groups = get(worker, "alerts/groups", filter="namespace=shop")
    assert [(group["labels"], group["receiver"]["name"], names(group["alerts"])) for group in groups] == [
        ({"namespace": "shop", "reason": "BackOff"}, "team", ["web-0", "web-1"]),
        ({"namespace": "shop", "reason": "Evicted"}, "team", ["web-2"]),
    ]
    assert [group["receiver"]["name"] for group in get(worker, "alerts/groups", receiver="infra")] == ["infra"]


def test_readers_see_the_alerts_of_their_namespaces(worker: ApiWorker) -> None:
    assert names(get(worker, "alerts", user="vic")) == ["web-0", "web-1", "web-2"]
    assert {group["labels"]["namespace"] for group in get(worker, "alerts/groups", user="vic")} == {"shop"}
    for path in ("alerts", "alerts/groups", "silences", "receivers"):
        assert ask(worker, "GET", path, user="nobody").status == 403
    assert ask(worker, "GET", "receivers", user="vic").status == 403
    assert get(worker, "status", user="vic")["versionInfo"]["version"] == "0.25.0"
    assert worker.call("GET", f"{ROOT}/alerts").status == 401


def test_alerts_are_not_posted(worker: ApiWorker) -> None:
    reply = ask(worker, "POST", "alerts", [{"labels": {"alertname": "x"}}])
    assert (reply.status, reply.json["code"]) == (405, 405)
    assert "record an event" in reply.json["message"]


# Silences


def test_a_silence_is_added_changed_and_expired(worker: ApiWorker) -> None:
    id_ = add(worker, silence(("reason", "BackOff")))
    found = get(worker, f"silence/{id_}")
    assert (found["status"], found["createdBy"], found["comment"]) == ({"state": "active"}, "admin", "maintenance")
    longer = found | {"endsAt": "2099-01-01T00:00:00.000Z"}
    assert add(worker, longer) == id_
    assert get(worker, f"silence/{id_}")["endsAt"] == "2099-01-01T00:00:00.000Z"
    other = add(worker, longer | {"matchers": silence(("reason", "Evicted"))["matchers"]})
    assert other != id_
    assert get(worker, f"silence/{id_}")["status"] == {"state": "expired"}
    pending = add(
        worker, silence(("reason", "Evicted"), hours=48, startsAt="2099-01-01T00:00:00Z", endsAt="2099-01-02T00:00:00Z")
    )
    assert [each["id"] for each in get(worker, "silences") if each["id"] in (id_, other, pending)] == [
        other,
        pending,
        id_,
    ]
    for each in (pending, other, other):
        assert ask(worker, "DELETE", f"silence/{each}").status == 200
    assert get(worker, f"silence/{pending}")["status"] == {"state": "expired"}
    assert [each["id"] for each in get(worker, "silences", filter="reason=BackOff")] == [id_]


def test_a_wrong_silence_is_refused_with_a_text(worker: ApiWorker) -> None:
    past = "2020-01-01T00:00:00Z"
    bodies: list[tuple[Any, str]] = [
        (b"x", "malformed"),
        ([], "object"),
        (silence(), "at least one matcher"),
        (silence(("reason", "")), "must not match the empty string"),
        (silence(("raeson", "BackOff")), "silence invalid: spec.matchers[0].name: "),
        (silence(("raeson", "BackOff")), "did you mean 'reason'"),
        (silence(("reason", "BackOff"), startsAt=past, endsAt=past), "end time can't be in the past"),
        (silence(("reason", "BackOff"), startsAt="2099-01-02T00:00:00Z"), "must be after startsAt"),
        (silence(("reason", "BackOff"), endsAt="9999-12-31T23:59:59.999999Z"), "must be in the years 1970 to 9998"),
        (silence(("reason", "BackOff"), endsAt="2099-01-01T00:00:00"), "Expected `datetime` with a timezone"),
        (silence(("reason", "BackOff"), comment="x" * 3000), "at most 2048 bytes"),
    ]
    for body, problem in bodies:
        reply = ask(worker, "POST", "silences", body)
        assert reply.status == 400, body
        assert isinstance(reply.json, str)
        assert problem in reply.json
    unknown = "00000000-0000-4000-8000-000000000000"
    for reply in (
        ask(worker, "POST", "silences", silence(("reason", "BackOff"), id=unknown)),
        ask(worker, "GET", f"silence/{unknown}"),
        ask(worker, "DELETE", f"silence/{unknown}"),
    ):
        assert (reply.status, isinstance(reply.json, str)) == (404, True)
    assert ask(worker, "POST", "silences", b"x" * 70_000).status == 413
    large = "alerts?filter=message%3D~%22[^x]*(.{0,200}a){5}y%22"
    for path in (large, "alerts?filter=%28", "alerts/groups?receiver=%28", "silences?filter=zz"):
        reply = ask(worker, "GET", path)
        assert (reply.status, isinstance(reply.json, str)) == (400, True), path
    assert ask(worker, "GET", "nothing").status == 404


def test_an_editor_of_a_namespace_silences_its_alerts_only(worker: ApiWorker) -> None:
    own = add(worker, silence(("namespace", "shop"), ("reason", "BackOff")), user="ed")
    wide = add(worker, silence(("reason", "BackOff")))
    assert [each["id"] for each in get(worker, "silences", user="vic") if each["status"]["state"] == "active"] == [own]
    for user, method, path, body in (
        ("ed", "POST", "silences", silence(("reason", "BackOff"))),
        ("ed", "POST", "silences", silence(("namespace", "bank"))),
        ("ed", "POST", "silences", silence(("namespace", "shop"), id=wide)),
        ("ed", "DELETE", f"silence/{wide}", None),
        ("vic", "POST", "silences", silence(("namespace", "shop"))),
        ("vic", "DELETE", f"silence/{own}", None),
        ("vic", "GET", f"silence/{wide}", None),
    ):
        reply = ask(worker, method, path, body, user)
        assert (reply.status, reply.json["code"]) == (403, 403), (user, method, path)
    assert get(worker, f"silence/{own}", user="vic")["createdBy"] == "ed"
    assert ask(worker, "DELETE", f"silence/{own}", user="ed").status == 200


# The page


def groups_of(worker: ApiWorker, user: str = "admin") -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the open groups of the page, by reason, namespace and receiver."""
    reply = worker.call("GET", "/eventbus/v1/notifications", Authorization=f"Bearer {user}")
    assert reply.status == 200, reply.data
    return {(each["labels"]["reason"], each["namespace"], each["receiver"]): each for each in reply.json["items"]}


def test_the_page_is_sent_groups_with_their_state(worker: ApiWorker) -> None:
    assert {name: group["state"] for name, group in groups_of(worker).items()} == {
        ("BackOff", "shop", "team"): "firing",
        ("BackOff", "bank", "team"): "firing",
        ("NodeNotReady", "default", "infra"): "firing",
        ("NodeNotReady", "default", "team"): "firing",
        ("Evicted", "shop", "team"): "inhibited",
    }
    id_ = add(worker, silence(("name", "web-0")))
    shop = groups_of(worker)["BackOff", "shop", "team"]
    assert (shop["state"], shop["firing"], shop["silenced"]) == ("firing", 2, 1)
    assert [(alert["name"], alert["silencedBy"]) for alert in shop["alerts"]] == [("web-0", [id_]), ("web-1", [])]
    add(worker, silence(("namespace", "shop")))
    assert groups_of(worker)["BackOff", "shop", "team"]["state"] == "silenced"
    assert groups_of(worker)["Evicted", "shop", "team"]["state"] == "silenced"


def test_the_page_is_sent_only_what_its_user_may_read(worker: ApiWorker) -> None:
    assert {name[1] for name in groups_of(worker, "vic")} == {"shop"}
    reply = worker.call("GET", "/eventbus/v1/notifications", Authorization="Bearer vic").json
    assert (reply["notifier"], reply["running"], reply["receivers"]) == ("one", True, [])
    assert worker.call("GET", "/eventbus/v1/notifications", Authorization="Bearer nobody").status == 403
    sessions = {
        user: worker.call("GET", "/eventbus/v1/session", Authorization=f"Bearer {user}").json
        for user in ("admin", "ed", "vic")
    }
    assert {user: (each["may"]["silence"], each["silenceIn"]) for user, each in sessions.items()} == {
        "admin": (True, []),
        "ed": (False, ["shop"]),
        "vic": (False, []),
    }


def test_an_acknowledged_group_names_its_user(worker: ApiWorker) -> None:
    about = {"kind": "Pod", "namespace": "shop", "name": "web-0"}
    body = {"apiVersion": "eventbus.dev/v1", "kind": "Acknowledgement", "spec": {"object": about}}
    path = "/apis/eventbus.dev/v1/acknowledgements"
    reply = worker.call("POST", path, body, Authorization="Bearer ed", Content_Type=JSON)
    assert reply.status == 201, reply.data
    shop = groups_of(worker)["BackOff", "shop", "team"]
    assert (shop["state"], shop["acknowledgedBy"]) == ("acknowledged", "ed")
    assert groups_of(worker)["BackOff", "bank", "team"]["state"] == "firing"
    name = reply.json["metadata"]["name"]
    assert worker.call("DELETE", f"{path}/{name}", Authorization="Bearer ed").status == 200
    assert groups_of(worker)["BackOff", "shop", "team"]["state"] == "firing"


# amtool


@pytest.fixture
def amtool(worker: ApiWorker, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs the real amtool with a token, and returns its output."""
    program = find_program("amtool")

    def run(*words: str, user: str = "admin", code: int = 0) -> str:
        config = tmp_path / f"{user}.yml"
        config.write_text(f"authorization: {{credentials: {user}}}\n")
        options = (f"--alertmanager.url={worker.url}/alertmanager", f"--http.config.file={config}")
        done = subprocess.run([program, *words, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def test_amtool_adds_queries_and_expires_silences(amtool: Callable[..., str], worker: ApiWorker) -> None:
    id_ = amtool("silence", "add", "BackOff", "name=~web-.*", "--duration=2h", "--comment=deploy").strip()
    assert get(worker, f"silence/{id_}")["createdBy"] == "admin"
    assert amtool("silence", "query", "-q").split() == [id_]
    (found,) = json.loads(amtool("silence", "query", "-o", "json", 'alertname="BackOff"'))
    assert [matcher["name"] for matcher in found["matchers"]] == ["alertname", "name"]
    assert names(json.loads(amtool("alert", "query", "-o", "json", "--silenced"))) == ["web-0", "web-1"]
    assert names(json.loads(amtool("alert", "query", "-o", "json"))) == ["node-1", "till-0"]
    amtool("silence", "update", "--duration=3h", id_)
    assert get(worker, f"silence/{id_}")["endsAt"] > found["endsAt"]
    amtool("silence", "expire", id_)
    assert amtool("silence", "query", "-q") == ""
    assert id_ in amtool("silence", "query", "--expired", "-q").split()


def test_amtool_queries_alerts(amtool: Callable[..., str]) -> None:
    assert "BackOff" in amtool("alert", "query", "namespace=shop", "-o", "simple")
    assert names(json.loads(amtool("alert", "query", "BackOff", "-o", "json", user="vic"))) == ["web-0", "web-1"]
    assert names(json.loads(amtool("alert", "query", "--receiver=infra", "-o", "json"))) == ["node-1"]
    assert "Web-0 <b>fails</b>".lower() in amtool("alert", "query", "name=web-0", "-o", "extended").lower()
    assert "disabled" in amtool("cluster", "show")


def test_amtool_shows_why_it_is_refused(amtool: Callable[..., str]) -> None:
    assert "403" in amtool("silence", "add", "BackOff", "--comment=deploy", user="ed", code=1)
    assert "must not match the empty string" in amtool("silence", "add", "reason=", "--comment=deploy", code=1)
    assert "401" in amtool("alert", "query", user="unknown", code=1)


def test_no_more_alerts_are_shown_than_the_bound_and_the_answer_says_so(
    bus: Bus, worker: ApiWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts_module, "MOST", 2)
    with serving(bus) as url, urlopen(f"{url}{ROOT}/alerts", timeout=30) as reply:
        assert "narrow the filter" in reply.headers["Warning"]
        assert len(json.loads(reply.read())) >= 2
