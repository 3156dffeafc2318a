"""The examples of docs/readers.md run as they stand, and its tables name what there is."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventbus.cache.indexer import Lister, NamespaceLister
from eventbus.cache.informer import SharedInformer
from tests.waiting import PATIENCE_S

PAGE = (Path(__file__).parents[2] / "docs" / "readers.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_page_runs(example: str, embedded_url: str, prefix: str) -> None:
    environment = os.environ | {
        "EVENTBUS_REDIS_URL": embedded_url,
        "EVENTBUS_PREFIX": prefix,
        "EVENTBUS_FLUSH_S": "60",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("method", [Lister.list, Lister.get, Lister.namespaced])
def test_the_page_shows_each_method_of_a_lister_as_it_is(method: Callable[..., Any]) -> None:
    assert f"| `{call_of(method)}` |" in PAGE


def test_a_lister_of_one_namespace_has_what_the_page_says() -> None:
    for method in (NamespaceLister.list, NamespaceLister.get):
        assert f"`{call_of(method)}`" in PAGE
    public = {name for lister in (Lister, NamespaceLister) for name in vars(lister) if not name.startswith("_")}
    assert public == {"list", "get", "namespaced"}


def test_the_page_shows_each_function_of_a_handler() -> None:
    functions = [name for name in inspect.signature(SharedInformer.add_event_handler).parameters if name[:3] == "on_"]
    assert re.findall(r"^\| `(on_\w+)\(", PAGE, re.MULTILINE) == functions


def call_of(method: Callable[..., Any]) -> str:
    """`list(selector="")`, as the page writes it."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    given = [each.name + ("" if each.default is each.empty else '=""') for each in parameters]
    return f"{method.__name__}({', '.join(given)})"
