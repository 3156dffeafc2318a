"""The examples of docs/readers.md run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
