"""`eventbus silence` and `eventbus ack`, over Redis and over HTTP, and the messages of a real notifier."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from eventbus.settings import Settings
from tests.acceptance.both_ways import environment_of
from tests.acceptance.programs import Program, environment, run
from tests.support.both_ways import BOTH
from tests.support.pagerduty_server import PagerDuty
from tests.support.webhook_server import Endpoint, receiving
from tests.thin import one
from tests.waiting import eventually

RULES = """
route: {{receiver: all, group_by: [name], group_wait: 0s, group_interval: 1s, repeat_interval: 1s}}
receivers:
- name: all
  webhook_configs: [{{url: "http://127.0.0.1:{chat}/"}}]
  pagerduty_configs: [{{url: "http://127.0.0.1:{pager}/v2/enqueue", routing_key: "{key}"}}]
"""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n")


over_redis = pytest.mark.parametrize("env", BOTH[:1], indirect=True)


@pytest.fixture(params=one(BOTH))
def env(request: pytest.FixtureRequest, embedded_url: str, prefix: str) -> Iterator[dict[str, str]]:
    """The environment of commands, over Redis or HTTP."""
    with environment_of(request, Settings(redis_url=embedded_url, prefix=prefix)) as found:
        yield found


@pytest.fixture
def worker_env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix, webhook_allow_hosts="127.0.0.1")


def done(env: dict[str, str], *words: str) -> str:
    ran = run(*words, env=env)
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    return ran.stdout


def states(env: dict[str, str]) -> dict[str, str]:
    """Return the state of each silence."""
    rows = [line.split() for line in done(env, "silence", "list", "--expired").splitlines()[1:]]
    return {row[0]: row[-1] for row in rows}


def test_silences_are_added_listed_and_expired(env: dict[str, str]) -> None:
    words = ("namespace=shop", 'reason=~"Back.*|Oops"', "host!=n1", "--for", "2h", "--comment", "upgrade of the db")
    printed = done(env, "silence", "add", *words)
    assert UUID.fullmatch(printed)
    active = printed.strip()
    shown = json.loads(done(env, "get", "silence", active, "-o", "json"))["spec"]
    assert [(each["value"], each["isRegex"], each["isEqual"]) for each in shown["matchers"]] == [
        ("shop", False, True),
        ("Back.*|Oops", True, True),
        ("n1", False, False),
    ]
    assert shown["createdBy"]
    made = json.loads(done(env, "silence", "add", "kind=Pod", "--start", "1h", "--for", "30m", "-o", "json"))
    pending = made["metadata"]["name"]
    assert states(env) == {active: "active", pending: "pending"}
    assert 'namespace="shop",reason=~"Back.*|Oops",host!="n1"' in done(env, "silence", "list")
    assert "upgrade of the db" in done(env, "silence", "list", "-o", "wide")
    missing = run("silence", "expire", active, pending, "none", env=env)
    assert missing.returncode == 1
    assert missing.stderr == 'Error from server (NotFound): silences.eventbus.dev "none" not found\n'
    assert states(env) == {active: "expired", pending: "expired"}
    assert json.loads(done(env, "silence", "expire", active, "-o", "json")) == {"expired": [active]}
    assert run("silence", "list", env=env).stderr == "No silences are active or pending\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        # what the parser refuses, what the store refuses, and what only the clock tells
        (["shop", "--for", "2h"], "'shop' is no matcher: write it as reason=\"BackOff\""),
        (["namespce=shop", "--for", "2h"], "there is no label 'namespce'; did you mean 'namespace'?"),
        (["kind=Pod", "--for", "1h", "--start", "2020-01-31T22:00:00Z"], "would have ended at 2020-01-31T23:00:00Z"),
        (["kind=Pod", "--for", "soon"], "'soon' is not a duration like 90s, 10m, 1h30m or 2d"),
        (["kind=Pod", "--for", "1h", "--start", "noon"], "'noon' is neither a duration like 30m nor a time like"),
    ],
)
def test_a_wrong_silence_is_refused_with_the_cure(env: dict[str, str], words: list[str], error: str) -> None:
    ran = run("silence", "add", *words, env=env)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert error in ran.stderr


def test_a_likely_mistake_in_a_silence_is_a_warning(env: dict[str, str]) -> None:
    ran = run("silence", "add", "kind=pod", 'name="web-*"', "--for", "1h", env=env)
    assert ran.returncode == 0
    assert UUID.fullmatch(ran.stdout)
    assert 'Warning: kind="pod": most kinds begin with a capital letter, and case matters\n' in ran.stderr
    assert 'name="web-*" compares the whole text: for a pattern write name=~"web\\-.*"\n' in ran.stderr


class Duty(PagerDuty):
    """PagerDuty with the actions of all events in order."""

    def actions(self) -> list[str]:
        return [json.loads(each.body)["event_action"] for each in self.deliveries]


@over_redis
def test_a_notifier_obeys_silences_and_acknowledgements(
    env: dict[str, str], worker_env: dict[str, str], tmp_path: Path
) -> None:
    chat, duty = Endpoint(), Duty()

    def names() -> list[str]:
        return [msgspec.json.decode(each.body)["groupLabels"]["name"] for each in chat.deliveries]

    def warn(name: str) -> None:
        about = ("record", f"Pod/{name}", "-n", "shop", "--type", "Warning", "--reason", "BackOff", "--message", "x")
        assert run(*about, env=worker_env).returncode == 0

    with receiving(chat) as chat_port, receiving(duty) as pager_port:
        path = tmp_path / "rules.yaml"
        path.write_text(RULES.format(chat=chat_port, pager=pager_port, key=duty.routing_key))
        path.chmod(0o600)
        silence = done(env, "silence", "add", "name=quiet", "--for", "1h", "--comment", "upgrade").strip()
        with (
            Program("worker", "sink", env=worker_env, folder=tmp_path),
            Program("worker", "notify", "--rules", str(path), env=worker_env, folder=tmp_path) as notifier,
        ):
            eventually(lambda: "acts in term 1" in notifier.err)
            warn("quiet")
            warn("loud")
            eventually(lambda: names().count("loud") >= 2)  # it is repeated each second
            assert "quiet" not in names()
            trace = ("rules", "trace", "--rules", str(path), "-n", "shop")
            quiet, loud = (
                done(worker_env, "get", "events", "-n", "shop", "--for", f"pod/{name}", "-o", "name").strip()
                for name in ("quiet", "loud")
            )
            assert f"silenced by {silence} until " in done(worker_env, *trace, quiet)
            fine = ("record", "Pod/fine", "-n", "shop", "--reason", "Started", "--message", "x")
            assert run(*fine, env=worker_env).returncode == 0
            eventually(lambda: "fine" in done(worker_env, "get", "events", "-n", "shop"))
            ran = run("ack", "pod/fine", "-n", "shop", env=env)
            assert (ran.returncode, ran.stdout) == (1, "")
            assert "no open group contains shop/Pod/fine: no alert about it fires and is notified" in ran.stderr
            assert done(env, "ack", "pod/loud", "-n", "shop", "--comment", "on it") == "shop/Pod/loud acknowledged\n"
            eventually(lambda: "acknowledge" in duty.actions())
            number = names().count("loud")
            acknowledged = done(worker_env, *trace, loud)
            assert re.search(r"acknowledged by \S+, and not repeated: on it", acknowledged)
            done(env, "silence", "expire", silence)
            eventually(lambda: names().count("quiet") >= 3)
            assert names().count("loud") - number <= 1  # one may have been under way
            assert done(env, "ack", "shop/Pod/loud", "--remove") == "shop/Pod/loud is not acknowledged any more\n"
            number = names().count("loud")
            eventually(lambda: names().count("loud") >= number + 2)
            assert notifier.stop() == 0
    assert duty.actions().count("acknowledge") == 1
