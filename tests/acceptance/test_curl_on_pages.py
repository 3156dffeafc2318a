"""The lines of curl on the pages, typed as they stand there, at a worker whose port is another."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_worker import api_worker

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/api.md", "docs/connect.md", "docs/http.md")
_LINE = re.compile(r"curl -.*?(?=\n\n|\n```|`)", re.DOTALL)
_PLACE = re.compile(r"(?:http://)?(?:127\.0\.0\.1|localhost):6480")


@pytest.fixture(scope="module")
def url(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with api_worker(embedded_url, f"curl-{os.getpid()}", tmp_path_factory.mktemp("api")) as worker:
        yield worker.url


@pytest.mark.parametrize("page", PAGES)
def test_a_line_of_curl_does_what_it_says(page: str, url: str) -> None:
    (line,) = _LINE.findall((ROOT / page).read_text("utf-8"))
    typed, places = _PLACE.subn(url, line)
    assert places == 1
    ran = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, timeout=100, check=True)
    answer = json.loads(ran.stdout)
    if "/eventbus/v1/" in line:
        assert answer == {"accepted": 1, "refused": []}
    else:
        assert (answer["kind"], answer["reason"]) == ("Event", "Completed"), answer
