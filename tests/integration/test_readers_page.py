"""The examples of docs/readers.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.programs import run_python

PAGE = (Path(__file__).parents[2] / "docs" / "readers.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_page_runs(example: str, embedded_url: str, prefix: str) -> None:
    done = run_python(example, EVENTBUS_REDIS_URL=embedded_url, EVENTBUS_PREFIX=prefix, EVENTBUS_FLUSH_S="60")
    assert (done.returncode, done.stderr) == (0, "")
