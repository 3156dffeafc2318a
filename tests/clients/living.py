"""What every client that watches has to live through: the API worker that it talks to is killed."""

from __future__ import annotations

from collections.abc import Iterable

from tests.clients.conftest import Front, running
from tests.clients.programs.telling import new_event
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker
from tests.waiting import eventually


def write(worker: ApiWorker, names: Iterable[str]) -> None:
    for name in names:
        reply = worker.call("POST", EVENTS, new_event(name))
        assert reply.status == 201, reply.data


def lives_through_a_killed_worker(front: Front, command: list[str]) -> None:
    """Run the client, given the address behind its program: it is told of all that is written, and writes itself."""
    first, _ = front.workers
    posts = any("kopf" in word for word in command)
    before, while_watching, after = ([f"{when}-{n}" for n in range(5)] for when in ("before", "during", "after"))
    write(first, before)
    with running([*command[:2], front.url, *command[2:]]) as client:
        eventually(lambda: client.alive() and client.names.issuperset(before))
        write(first, while_watching)
        eventually(lambda: client.alive() and client.names.issuperset(while_watching))
        second = front.fail_over()
        write(second, after)
        eventually(lambda: client.alive() and client.names.issuperset(after))
        eventually(lambda: posts or (client.alive() and any("wrote" in line for line in client.told)))
        written = [line for line in client.told if "wrote" in line]
    for line in written:
        assert line["count"] == 2
        assert second.call("GET", f"{EVENTS}/{line['wrote']}").json["count"] == 2
    if posts:
        posted = second.call("GET", f"{EVENTS}?fieldSelector=reason=Seen").json["items"]
        assert [event["message"] for event in posted] == ["by-kopf"]
    else:
        assert written


__all__ = ["lives_through_a_killed_worker"]
