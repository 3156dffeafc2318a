"""process_hooks.py: one line for surroundings in which threads are not what they are elsewhere."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Any

import pytest

from eventbus.record import process_hooks
from eventbus.record.process_hooks import describe_thread_support


def module(name: str, **attributes: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(attributes)
    return made


UWSGI = [
    ({}, False),
    ({b"http": b":8000", b"workers": b"4"}, False),
    ({b"enable-threads": True}, True),
    ({b"enable-threads": b"true"}, True),
    ({"enable-threads": "1"}, True),
    ({b"enable-threads": b"false"}, False),
    ({b"threads": b"2"}, True),
]


@pytest.mark.parametrize(("options", "runs_threads"), UWSGI)
def test_uwsgi_without_threads_is_told(
    options: dict[Any, Any], runs_threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", module("uwsgi", opt=options))
    found = describe_thread_support()
    assert (found is None) == runs_threads
    if found:
        assert not found[0]
        assert "--enable-threads" in found[1]


@pytest.mark.parametrize("patched", [True, False])
@pytest.mark.parametrize(
    ("name", "question"), [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")]
)
def test_a_library_that_replaces_threads_is_told(
    name: str, question: str, patched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, module(name, **{question: lambda _module: patched}))
    found = describe_thread_support()
    assert (found is not None) == patched
    if found:
        assert found[0]
        assert found[1].startswith(name.partition(".")[0])


def test_nothing_is_told_elsewhere() -> None:
    assert describe_thread_support() is None


def test_it_is_told_once_a_process(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(process_hooks, "_started", False)
    monkeypatch.setitem(sys.modules, "uwsgi", module("uwsgi", opt={}))
    process_hooks.start()
    process_hooks.start()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
