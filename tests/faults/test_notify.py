"""Row 37: the acting notifier dies at each step of a message, and Redis fails over below it; for each receiver.

Each message arrives; once more at most for a take-over, with the same key where the service has one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email import message_from_bytes
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventbus import EventBroadcaster, Settings
from eventbus.broker.connection.cluster import key_slot
from eventbus.model.event import ObjectReference
from eventbus.notify.engine import IntegrationState
from eventbus.notify.group_reader import read_groups
from tests.faults import test_failover
from tests.faults.checker import Verdict
from tests.faults.conftest import Harm, Note, NoteControl
from tests.faults.proxy import Mode
from tests.faults.scene import Process, Scene, until
from tests.faults.test_failover import Pair, replace_master
from tests.functions.cluster import SLOTS, Cluster
from tests.support.certificates import make_certificate
from tests.support.pagerduty_server import PagerDuty
from tests.support.slack_server import HOOK, SlackWorkspace
from tests.support.smtp_server import Mailbox, mail_server
from tests.support.webhook_server import Delivery, Endpoint, receiving

KILLED = "37 notifier killed"
STEPS = ("decided", "written", "sent", "confirmed")
TAKE_OVER_S = 1.0
#: The steps after which the message has arrived, and is not confirmed.
REPEATED = "sent"

pair = test_failover.pair  # a fixture

MakeScene = Callable[..., Scene]
Messages = Callable[[], list[tuple[str, str]]]


class Service(NamedTuple):
    """One kind of receiver: its configuration, and the messages that arrived, as text and key ("": it has none)."""

    configs: dict[str, Any]
    messages: Messages


@contextmanager
def service(kind: str, folder: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        if kind == "email":
            authority, tls = make_certificate(folder, "IP:127.0.0.1")
            mailbox = Mailbox(tls, password="secret")
            config: dict[str, Any] = {
                "smarthost": f"127.0.0.1:{stack.enter_context(mail_server(mailbox))}",
                "from": "eventbus@example.com",
                "to": "duty@example.com",
                "auth_username": "notifier",
                "auth_password": "secret",
                "tls_config": {"ca_file": str(authority)},
            }

            def mails() -> list[tuple[str, str]]:
                found = [message_from_bytes(mail) for mail in list(mailbox.mails)]
                return [(str(mail["Subject"]), str(mail["Message-ID"])) for mail in found]

            yield Service({"email_configs": [config]}, mails)
            return
        kinds: dict[str, type[Endpoint]] = {"slack": SlackWorkspace, "slack-hook": SlackWorkspace}
        endpoint = PagerDuty() if kind == "pagerduty" else kinds.get(kind, Endpoint)()
        url = f"http://127.0.0.1:{stack.enter_context(receiving(endpoint))}"
        configs: dict[str, dict[str, Any]] = {
            "webhook": {"webhook_configs": [{"url": url}]},
            "slack": {"slack_configs": [{"app_url": f"{url}/api/", "app_token": "xoxb-token", "channel": "#alerts"}]},
            "slack-hook": {"slack_configs": [{"api_url": f"{url}{HOOK}"}]},
            "pagerduty": {"pagerduty_configs": [{"url": f"{url}/v2/enqueue", "routing_key": "R" * 32}]},
            "alertmanager": {"alertmanager_configs": [{"url": url}]},
            "apprise": {"apprise_configs": [{"url": url.replace("http", "json")}]},
        }
        yield Service(configs[kind], lambda: [(each.body.decode(), _key(kind, each)) for each in endpoint.deliveries])


def _key(kind: str, delivery: Delivery) -> str:
    if kind == "webhook":
        return delivery.headers["idempotency-key"]
    if kind == "pagerduty":
        return str(json.loads(delivery.body)["dedup_key"])
    if kind == "alertmanager":
        return json.dumps([alert["labels"] for alert in json.loads(delivery.body)], sort_keys=True)
    return ""


class World:
    """A scene with notifiers for one service, and a producer of Warnings in this process."""

    def __init__(self, scene: Scene, service: Service, url: str = "") -> None:
        self.scene = scene
        self.url = url or scene.url
        self._messages = service.messages
        self._rules = scene.folder / f"{scene.prefix}-rules.yaml"
        self._rules.write_text(
            json.dumps(
                {
                    "route": {"receiver": "a", "group_by": ["name"], "group_wait": "0s", "group_interval": "1h"},
                    "receivers": [{"name": "a", **service.configs}],
                }
            )
        )
        self._rules.chmod(0o600)
        self._broadcaster = EventBroadcaster(self.url, settings=Settings(prefix=scene.prefix))
        self._recorder = self._broadcaster.new_recorder("faults")

    def close(self) -> None:
        self._broadcaster.shutdown()

    def notifier(self, crash: str = "", breakage: tuple[str, ...] = ()) -> Process:
        self.scene.worker_env["EVENTBUS_WEBHOOK_ALLOW_HOSTS"] = "127.0.0.1"
        options: dict[str, Any] = {"rules": self._rules, "take_over_s": TAKE_OVER_S}
        return self.scene.worker(kind="notify", url=self.url, crash=crash, breakage=breakage, **options)

    def warn(self, *names: str) -> None:
        for name in names:
            self._recorder.event(ObjectReference("Pod", "default", name), "Warning", "BackOff", "back-off")
        assert self._broadcaster.flush(60)

    def arrived(self, name: str) -> list[str]:
        """Return the keys of the messages about one pod."""
        return [key for text, key in self._messages() if name in text]

    def is_settled(self, *names: str) -> bool:
        """Return True if all of these have a group, and no message waits."""
        groups, _ = read_groups(self.scene.bus, self.scene.client, lambda _alert: True, 10_000)
        sent = {each.group.labels["name"]: list(each.group.sent.values()) for each in groups}
        return sent.keys() >= set(names) and all(
            each.number and not each.pending for states in sent.values() for each in states or [IntegrationState()]
        )


@pytest.fixture
def world(scene: MakeScene, tmp_path: Path) -> Iterator[Callable[..., World]]:
    with ExitStack() as stack:

        def make(kind: str = "webhook", here: Scene | None = None, url: str = "") -> World:
            made = World(here or scene(), stack.enter_context(service(kind, tmp_path)), url)
            stack.callback(made.close)
            return made

        yield make


def die_at(world: World, step: str, breakage: tuple[str, ...] = ()) -> float:
    """Let the first notifier die at *step* of its first message, and a second take over. Returns: when it had."""
    world.scene.worker()
    first = world.notifier(f"kill:notify:{step}")
    until(lambda: "acts in term 1" in first.said)
    world.warn("web-0")
    until(lambda: first.ended)
    taken_over = time.monotonic()
    second = world.notifier(breakage=breakage)
    until(lambda: "acts in term 2" in second.said)
    world.warn("web-1")
    until(lambda: world.arrived("web-1"))
    return taken_over


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("webhook", marks=pytest.mark.short),
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("slack", "slack-hook", "pagerduty", "email", "alertmanager", "apprise")
        ),
    ],
)
def test_a_notifier_that_dies_at_any_step_repeats_one_message_at_most(
    world: Callable[..., World], kind: str, step: str, note: Note
) -> None:
    here = world(kind)
    taken_over = die_at(here, step)
    until(lambda: here.is_settled("web-0", "web-1"))
    first, second = here.arrived("web-0"), here.arrived("web-1")
    lost = (not first) + (not second)
    note(KILLED, Verdict(accepted=2, missing=lost, recovery_s=time.monotonic() - taken_over))
    assert (len(first), len(second)) == (2 if step == REPEATED else 1, 1)
    assert len(set(first)) == 1


@pytest.mark.long
def test_control_messages_that_are_not_confirmed_are_forgotten(
    world: Callable[..., World], note_control: NoteControl
) -> None:
    here = world()
    die_at(here, "written", ("pending-messages-are-forgotten",))
    note_control(KILLED, Harm(not here.arrived("web-0"), "1 message lost"), "pending messages are forgotten")


def names(begin: int) -> list[str]:
    return [f"web-{number:03}x" for number in range(begin, begin + 10)]


@pytest.mark.long
@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies too"])
def test_a_replica_that_lacks_the_newest_state_loses_no_message(
    world: Callable[..., World], pair: Pair, dies: bool, note: Note
) -> None:
    scene, _, link, line = pair
    here = world(here=scene, url=line.url)
    scene.worker(url=line.url)
    notifier = here.notifier()
    until(lambda: "acts in term 1" in notifier.said)
    here.warn(*names(0))
    until(lambda: here.is_settled(*names(0)))
    link.mode = Mode.BLACK_HOLE
    here.warn(*names(10))
    until(lambda: here.is_settled(*names(10)))  # the replica has none of this
    if dies:
        notifier.kill()
    taken_over = replace_master(pair)
    if dies:
        here.notifier()
    here.warn(*names(20))
    everything = [*names(0), *names(10), *names(20)]
    until(lambda: here.is_settled(*names(20)))
    until(lambda: all(here.arrived(name) for name in everything))
    arrived = Counter({name: len(here.arrived(name)) for name in everything})
    repeats = sum(arrived.values()) - 30
    note("37 notifier, failover", Verdict(accepted=30, recovery_s=time.monotonic() - taken_over), f"{repeats} repeats")
    assert {arrived[name] for name in [*names(0), *names(20)]} == {1}
    assert max(arrived.values()) <= (2 if dies else 1)


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_the_death_of_the_clusters_node_with_the_state_loses_no_message(
    scene: MakeScene, world: Callable[..., World], short_path: Path, how: str, note: Note
) -> None:
    cluster = Cluster(short_path)
    here = world(here=scene(server=cluster, partitions=3))
    here.scene.worker()
    notifier = here.notifier()
    until(lambda: "acts in term 1" in notifier.said)
    here.warn(*names(0))
    until(lambda: here.is_settled(*names(0)))
    number = key_slot(here.scene.bus.keys[0].notify) * 3 // SLOTS
    if how == "killed":
        cluster.kill(number)
    else:
        cluster.freeze(number)
    here.warn(*names(10))
    until(lambda: cluster.is_primary(number + 3))
    taken_over = time.monotonic()
    here.warn(*names(20))
    everything = [*names(0), *names(10), *names(20)]
    until(lambda: all(here.arrived(name) for name in everything))
    until(lambda: here.is_settled(*everything))
    arrived = [len(here.arrived(name)) for name in everything]
    note(
        "37 notifier, cluster",
        Verdict(accepted=30, recovery_s=time.monotonic() - taken_over),
        f"{sum(arrived) - 30} repeats",
    )
    assert max(arrived) <= 2
