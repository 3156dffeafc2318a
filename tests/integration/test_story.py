"""One object's story: itself, what it owns, and what happened around it; over Redis, HTTP, and as a command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus.broker.bus import Bus
from eventbus.cli.printers.story_page import format_story, verdict
from eventbus.client.address import parse_api_url
from eventbus.client.connection import ApiConnection
from eventbus.model.event import ObjectMeta, ObjectReference, OwnerReference
from eventbus.model.kinds import EVENT
from eventbus.model.kinds import POD as POD_KIND
from eventbus.model.objects.pod import Pod
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.story.reading import fetch_story, read_story
from eventbus.store.story.story import Link, Story, story_from_json, story_to_json
from tests.acceptance.programs import environment, run
from tests.support.api_in_process import serving
from tests.support.fleet import HOST, POD, make_fleet, make_one
from tests.support.harness import bus_with, settings_of
from tests.waiting import eventually


@pytest.fixture
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return bus_with(embedded_url, settings_of(prefix, partitions=getattr(request, "param", 4)))


@pytest.fixture
def client(bus: Bus) -> Iterator[Any]:
    client = bus.client()
    with ObjectStore(bus, client) as store:
        make_fleet(store, datetime.now(UTC).replace(microsecond=0))
    yield client
    client.close()


def around(story: Story) -> dict[Link, list[str]]:
    found: dict[Link, list[str]] = {}
    for one in story.around:
        found.setdefault(one.link, []).append(f"{one.event.involved_object.name} {one.event.reason}")
    return found


def test_a_pod_is_told_with_its_owners_its_node_and_what_changed_before_it_failed(bus: Bus, client: Any) -> None:
    story = read_story(bus, client, ObjectReference("pod", "shop", "web-7f-a"))

    assert story.object == POD
    assert [event.reason for event in story.events] == ["Started", "Failed"]
    assert [owner.name for owner in story.owners] == ["web-7f", "web"]
    assert story.hosts == (HOST,)
    assert story.first_warning is not None
    assert story.first_warning.reason == "Failed"
    assert around(story) == {
        Link.OWNER: ["web ScalingReplicaSet", "web-7f SuccessfulCreate"],
        Link.CHANGE: ["nginx Upgraded"],
        Link.NODE: [f"{HOST} NodeHasDiskPressure"],
        Link.SAME_REASON: ["db-0 Failed"],
    }
    earlier = read_story(bus, client, POD, before=timedelta(minutes=1))
    assert around(earlier) == {Link.NODE: [f"{HOST} NodeHasDiskPressure"], Link.SAME_REASON: ["db-0 Failed"]}


def test_what_eventbus_itself_started_is_left_out_unless_it_is_asked_for(bus: Bus, client: Any) -> None:
    when = datetime.now(UTC) - timedelta(minutes=10, seconds=20)
    worker, line = ObjectReference("Worker", "eventbus-system", "w-1"), ObjectReference("Pod", "default", "tick-host")
    crashed = msgspec.structs.replace(
        make_one("Pod/default/tick-host", "Crashed", "exit code 1", when, component="eventbus-up"), type="Warning"
    )
    with ObjectStore(bus, client) as store:
        for event in (
            make_one("Worker/eventbus-system/w-1", "Starting", "Starting eventbus-sink.", when),
            make_one("Pod/default/tick-host", "Started", "Started container tick", when, component="eventbus-up"),
            make_one("Package/default/nginx-2", "Installed", "installed nginx", when),
            make_one("Worker/eventbus-system/up-1", "Starting", "Starting eventbus-up.", when, component="eventbus-up"),
            make_one(
                f"Node//{HOST}", "NodeReady", "NodeReady", when + timedelta(seconds=1), component="eventbus-agent"
            ),
            crashed,
        ):
            store.objects(EVENT).create(event)

    def told(about: ObjectReference, *, system: bool = False) -> set[str]:
        story = read_story(bus, client, about, system=system)
        return {f"{one.event.involved_object.name} {one.event.reason}" for one in story.around}

    own = {"w-1 Starting", "tick-host Started", f"{HOST} NodeReady"}
    assert not told(POD) & own
    assert {"nginx-2 Installed", "tick-host Crashed"} <= told(POD)
    assert own - {"w-1 Starting"} <= told(POD, system=True)
    assert "tick-host Started" in told(worker)
    assert [event.reason for event in read_story(bus, client, worker).events] == ["Starting"]
    assert {event.reason for event in read_story(bus, client, line).events} == {"Started", "Crashed"}
    with serving(bus) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))
        for system in (False, True):
            fetched = fetch_story(connection, POD, system=system)
            assert around(fetched) == around(read_story(bus, client, POD, system=system))
        connection.close()


def test_objects_that_were_started_together_are_one_line(bus: Bus, client: Any) -> None:
    when = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10, seconds=20)
    with ObjectStore(bus, client) as store:
        for number in range(3):
            for reason in ("Created", "Started"):
                about = f"Pod/default/cache-{number}"
                store.objects(EVENT).create(make_one(about, reason, f"{reason} container", when))
        for reason in ("Created", "Started"):
            late = when + timedelta(seconds=15)
            store.objects(EVENT).create(make_one("Pod/default/late-0", reason, f"{reason} container", late))

    story = read_story(bus, client, POD)

    [group] = [one for one in story.around if one.also]
    assert {group.event.involved_object.name, *(one.name for one in group.also)} == {"cache-0", "cache-1", "cache-2"}
    alone = [one.event.reason for one in story.around if one.event.involved_object.name == "late-0"]
    assert sorted(alone) == ["Created", "Started"], "a single object keeps all of its own"
    assert len([one for one in story.around if one.event.involved_object.name.startswith("cache-")]) == 1
    page = format_story(story, now=datetime.now(UTC))
    [line] = [line for line in page.splitlines() if "cache-" in line]
    assert "Pod ×3" in line
    assert "3 started: " in line
    plain = msgspec.json.encode(story_to_json(story, datetime.now(UTC)))
    assert [one.also for one in story_from_json(plain).around] == [one.also for one in story.around]


def test_an_owner_tells_what_its_own_go_through_and_an_object_that_is_stored_shows_itself(
    bus: Bus, client: Any
) -> None:
    web = read_story(bus, client, ObjectReference("Deployment", "shop", "web"))
    assert [one.name for one in web.owned] == ["web-7f", "web-7f-a"]
    assert [event.reason for event in web.of_owned] == ["SuccessfulCreate", "Started", "Failed"]
    assert "Failed 41 times" in verdict(web, now=datetime.now(UTC))

    node = read_story(bus, client, ObjectReference("Node", "", HOST))
    assert node.stored is not None
    assert node.stored["metadata"]["name"] == HOST
    nothing = read_story(bus, client, ObjectReference("Pod", "shop", "nobody"))
    assert (nothing.events, nothing.around, nothing.stored, nothing.since) == ((), (), None, None)


def test_the_api_tells_the_same_and_hides_other_namespaces_from_who_may_not_read_them(
    bus: Bus, client: Any, tmp_path: Path
) -> None:
    story = read_story(bus, client, POD)
    with serving(bus) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))
        fetched = fetch_story(connection, POD)
        assert around(fetched) == around(story)
        assert [event.message for event in fetched.events] == [event.message for event in story.events]
        assert connection.request("GET", "/eventbus/v1/why?kind=Pod").status == 400
        for asked in (
            "object=shop/po/web-7f-a",
            "object=pod/web-7f-a&namespace=shop",
            "kind=pods&namespace=shop&name=web-7f-a",
        ):
            answer = json.loads(connection.request("GET", f"/eventbus/v1/why?{asked}").body)
            assert len(answer["events"]) == len(story.events), asked
        assert connection.request("GET", "/eventbus/v1/why?object=shop").status == 400
        assert connection.request("GET", "/eventbus/v1/why?kind=Pod&name=x&before=soon").status == 400
        connection.close()
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("t,shopper,1\n")
    with serving(bus, tokens=tokens, grants=["view=user:shopper@shop"]) as url:
        connection = ApiConnection(parse_api_url(url, Settings(token="t")))
        seen = fetch_story(connection, POD)
        assert around(seen) == {Link.OWNER: around(story)[Link.OWNER]}
        denied = connection.request("GET", "/eventbus/v1/why?kind=Pod&namespace=other&name=db-0")
        assert denied.status == 403
        assert connection.request("GET", "/eventbus/v1/events").status == 403
        assert connection.request("GET", "/eventbus/v1/events?namespace=shop").status == 200
        connection.close()
    assert story_from_json(msgspec.json.encode(story_to_json(story, datetime.now(UTC)))).around


@pytest.mark.parametrize("bus", [1, 4], ids=["1 partition", "4 partitions"], indirect=True)
def test_versions_of_a_story_and_of_a_search_are_those_of_the_api(bus: Bus, client: Any) -> None:
    with serving(bus) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))

        def versions(path: str, *names: str) -> dict[str, str]:
            told = json.loads(connection.call("GET", path))
            items = [one.get("event", one) for name in names for one in told[name]]
            return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in items}

        listed = versions("/api/v1/events", "items")
        assert versions("/eventbus/v1/events", "items") == listed
        for asked in ("kind=Pod&namespace=shop&name=web-7f-a", "kind=Deployment&namespace=shop&name=web"):
            told = versions(f"/eventbus/v1/why?{asked}", "events", "ofOwned", "around")
            assert len(told) > 3
            assert told.items() <= listed.items()
        node = json.loads(connection.call("GET", f"/api/v1/nodes/{HOST}"))
        story = json.loads(connection.call("GET", f"/eventbus/v1/why?kind=Node&name={HOST}"))
        assert story["stored"]["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]
        connection.close()


def test_who_may_read_one_namespace_learns_nothing_of_what_a_node_runs_in_another(
    bus: Bus, client: Any, tmp_path: Path
) -> None:
    owner = OwnerReference(api_version="v1", kind="Node", name=HOST, uid="u")
    with ObjectStore(bus, client) as store:
        for namespace in ("secretns", "default"):
            metadata = ObjectMeta(name=f"of-{namespace}", namespace=namespace, owner_references=(owner,))
            store.objects(POD_KIND).create(Pod(metadata=metadata))
        hidden = datetime.now(UTC) - timedelta(hours=3)
        about_hidden = make_one("Pod/secretns/of-secretns", "Failed", "hush", hidden, host="secret-host")
        store.objects(EVENT).create(msgspec.structs.replace(about_hidden, type="Warning"))
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("t,one,1\na,all,2\n")
    with serving(bus, tokens=tokens, grants=["view=user:one@default", "view=user:all"]) as url:
        told = {}
        for token, namespace in (("t", "default"), ("a", "")):
            connection = ApiConnection(parse_api_url(url, Settings(token=token)))
            told[token] = fetch_story(connection, ObjectReference("Node", namespace, HOST))
            connection.close()
    assert [one.name for one in told["t"].owned] == ["of-default"]
    assert told["t"].hosts == (HOST,)
    assert told["t"].since is not None
    assert told["t"].since > hidden
    assert {one.name for one in told["a"].owned} == {"of-default", "of-secretns"}
    assert told["a"].hosts == (HOST, "secret-host")
    # And what was read of all namespaces is cut to one.
    cut = told["a"].within("default")
    assert ([one.name for one in cut.owned], cut.hosts, cut.owners) == (["of-default"], (HOST,), ())
    assert (cut.since, cut.until) == (told["t"].since, told["t"].until)


def test_a_completion_ends_the_verdict_for_the_command_the_story_and_the_page_alike(
    bus: Bus, client: Any, embedded_url: str, prefix: str
) -> None:
    body = msgspec.json.encode({"objects": [POD, ObjectReference("Job", "shop", "backup")]})
    env = environment(embedded_url, prefix)
    with serving(bus) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))
        assert connection.request("POST", "/eventbus/v1/verdicts", body=b'{"objects": "all"}').status == 400

        def said() -> tuple[Any, Any, str]:
            listed = json.loads(connection.request("POST", "/eventbus/v1/verdicts", body=body).body)["items"]
            told = json.loads(connection.request("GET", "/eventbus/v1/why?kind=Pod&namespace=shop&name=web-7f-a").body)
            ((one,), (two,)) = (listed, told["verdicts"])
            return one["still"], two["still"], run("why", "pod/web-7f-a", "-n", "shop", env=env).stdout.splitlines()[0]

        assert said()[:2] == ("goes-on", "goes-on")
        with ObjectStore(bus, client) as store:
            now = datetime.now(UTC)
            completed = make_one("Pod/shop/web-7f-a", "Completed", "served its time", now)
            store.objects(EVENT).create(completed)
        listed, told, line = said()
        assert (listed, told) == ("stopped", "stopped")
        assert line.endswith("recovered: Completed since then.")
        connection.close()


def test_what_was_recorded_again_and_again_tells_when(bus: Bus, embedded_url: str, prefix: str) -> None:
    web = ObjectReference("Pod", "shop", "web-0")
    with EventBroadcaster(embedded_url, settings=settings_of(prefix)) as broadcaster, bus.client() as client:
        broadcaster.start_recording_to_sink()
        for _ in range(7):
            broadcaster.new_recorder("c").event(web, "Warning", "Failed", "exit code 1")
        assert broadcaster.flush(60)
        eventually(lambda: any(event.count == 7 for event in read_story(bus, client, web).events))
        (rhythm,) = read_story(bus, client, web).rhythms
        assert (rhythm.own, sum(minute.count for minute in rhythm.minutes), rhythm.silences) == (True, 7, ())


def test_silences_are_told_by_the_command_and_over_http(bus: Bus, client: Any) -> None:
    now = datetime.now(UTC)
    first, last = now - timedelta(minutes=40), now - timedelta(minutes=1)
    with ObjectStore(bus, client) as store:
        store.objects(EVENT).create(make_one("Pod/shop/quiet", "Restarted", "again", first, last, 20))
    for keys in bus.keys:  # where writing it has counted it: now
        client.delete(*(client.keys(keys.occurrences + b"*") or [b"none"]))
    begin, end = (int(time.timestamp()) // 60 for time in (first, last))
    for minute, count in ((begin, 10), (begin + 1, 5), (end, 5)):
        client.hset(bus.keys[0].occurrences + b"%d" % minute, b"shop\0Pod\0Normal\0Restarted\0kubelet", count)
    quiet = ObjectReference("Pod", "shop", "quiet")
    story = read_story(bus, client, quiet)
    ((silence,),) = (rhythm.silences for rhythm in story.rhythms)
    assert silence.until - silence.since == timedelta(minutes=37)
    assert "Pauses between its events" in format_story(story, now=now)
    assert "37m" in format_story(story, now=now).split("Pauses between its events")[1]
    with serving(bus) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))
        assert fetch_story(connection, quiet).rhythms == story.rhythms
        connection.close()
    assert story.within("other").rhythms == story.rhythms  # its own events are not left out


def test_the_command_shows_it_as_a_page_and_as_json(bus: Bus, client: Any, embedded_url: str, prefix: str) -> None:
    env = environment(embedded_url, prefix)
    page = run("why", "pod", "web-7f-a", "-n", "shop", env=env)
    assert page.returncode == 0, page.stderr
    assert "Pod/web-7f-a: Failed 41 times, warnings since" in page.stdout
    assert "still failing" in page.stdout
    assert "-70s" in page.stdout
    assert "change on its host" in page.stdout
    with serving(bus) as url:
        over_http = run(
            "why", "deploy/web", "-n", "shop", "-o", "json", env={**environment("", prefix), "EVENTBUS_URL": url}
        )
    assert over_http.returncode == 0, over_http.stderr
    assert '"ofOwned"' in over_http.stdout
    nobody = run("why", "pod/nobody", env=env)
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "pod/nobody not found" in nobody.stderr
    assert run("why", "pod/nobody", "--before", "never", env=env).returncode == 2
    begun = run("why", "pod", "web-7f", "-n", "shop", env=env)
    assert "web-7f-a" in begun.stdout + begun.stderr


def test_the_commands_find_an_object_however_it_is_written_and_show_its_kind_as_it_was_first_written(
    bus: Bus, client: Any, embedded_url: str, prefix: str
) -> None:
    now, env = datetime.now(UTC), environment(embedded_url, prefix)
    with ObjectStore(bus, client) as store:
        for about, reason, s in (
            ("Order/shop/7", "Paid", 30),
            ("order/shop/7", "Packed", 20),
            ("ORDER/shop/7", "Lost", 1),
        ):
            store.objects(EVENT).create(make_one(about, reason, "m", now - timedelta(seconds=s)))
    for words in (("shop/order/7",), ("shop/Order/7", "-n", "other"), ("Order/7", "-n", "shop")):
        story = run("why", *words, env=env)
        assert story.returncode == 0, story.stderr
        assert story.stdout.startswith("Order/7: no Warning")
        for reason in ("Paid", "Packed", "Lost"):
            assert reason in story.stdout
        for command in (("describe", *words), ("events", "--for", *words), ("get", "events", "--for", *words)):
            shown = run(*command, env=env)
            assert all(reason in shown.stdout for reason in ("Paid", "Packed", "Lost")), (command, shown)
    described = run("describe", "shop/order/7", "-o", "json", env=env)
    assert [json.loads(described.stdout)[key] for key in ("kind", "namespace", "name")] == ["Order", "shop", "7"]


def test_texts_are_printable(bus: Bus, client: Any) -> None:
    story = read_story(bus, client, ObjectReference("Pod", "shop", "nasty"))
    text = format_story(story, now=datetime.now(UTC))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred" in text
