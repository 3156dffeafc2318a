"""Wrong words of `get` and `record` end with exit code 2 before the bus is asked, which here would be exit code 1."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from eventbus.workers.cli import main

NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_REDIS_URL", NOBODY)
    monkeypatch.setenv("EVENTBUS_NAMESPACE", "default")  # the program sets it for -n


def refused(*words: str) -> str:
    """Return what is said of *words* on standard error."""
    done: Result = CliRunner().invoke(main, words, prog_name="eventbus")
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    return done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("events", "--types", "Info"), "valid --types are Normal or Warning"),
        (("events", "--types", ""), "valid --types are Normal or Warning"),
        (("events", "--for", "web-0"), "KIND/NAME"),
        (("events", "--for", "pod/"), "KIND/NAME"),
        (("events", "--since", "yesterday"), "yesterday"),
        (("events", "a", "--for", "pod/a"), "--for"),
        (("events", "-w", "--until", "1h"), "--until"),
        (("events", "--since", "2h", "--until", "3h"), "--since is later than --until"),
        (("nodes", "-o", "xml"), "unable to match a printer suitable for the output format"),
        (("nodes", "-o", "jsonpath={.a"), "unclosed action"),
        (("nodes", "--sort-by", "{.a[}"), "JSONPath"),
        (("nodes", "--bogus"), "--bogus"),
        (("leases", "-n", "No_Namespace"), "DNS label"),
        (("nodes", "a", "-l", "b"), "name cannot be provided when a selector is specified"),
        (("leases", "a", "-A"), "a resource cannot be retrieved by name across all namespaces"),
        (("nodes", "a", "b", "-w"), "watch is only supported on individual resources"),
    ],
)
def test_a_wrong_question_is_refused(words: tuple[str, ...], said: str) -> None:
    assert said in refused("get", *words)


GOOD = {"about": "pod/web-0", "--reason": "R", "--message": "m"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"about": "web-0"}, "KIND/NAME"),
        ({"about": "pod/"}, "KIND/NAME"),
        ({"about": "/web-0"}, "KIND/NAME"),
        ({"about": "shop/pod/web/0"}, "apart from its kind"),
        ({"about": "pod/" + "x" * 254}, "253"),
        ({"about": "pod/\udcff"}, "UTF-8"),
        ({"-n": "Not_A_Label"}, "DNS label"),
        ({"--type": "Info"}, "Info"),
        ({"--reason": ""}, "reason"),
        ({"--reason": "x" * 129}, "128"),
        ({"--message": "\udcff"}, "UTF-8"),
        ({"--message": None}, "--message"),
        ({"--component": "x" * 129}, "128"),
        ({"--component": "\udcc3"}, "UTF-8"),
        ({"--annotation": "novalue"}, "KEY=VALUE"),
        ({"--annotation": "a=" + "x" * 1025}, "1024"),
        ({"--annotation": "a=\udcff"}, "UTF-8"),
        ({"--at": "noon"}, "noon"),
        ({"--at": "2020-01-01T00:00:00"}, "zone"),
        ({"--at": "1970-01-01T00:00:00Z"}, "ten years"),
    ],
)
def test_an_event_that_cannot_be_is_refused(changed: dict[str, str | None], said: str) -> None:
    options = {**GOOD, **changed}
    about = options.pop("about")
    assert about is not None
    given = [word for option, value in options.items() if value is not None for word in (option, value)]
    assert said in refused("record", about, *given)
