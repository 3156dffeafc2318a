"""The programs of `docs/connect.md` pass `mypy --strict`, as their readers' own do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What the tests' environment lacks, as far as the programs use it.
STUBS = {
    "fastapi/__init__.pyi": """
from collections.abc import Callable
from typing import TypeVar
F = TypeVar("F", bound=Callable[..., object])
class FastAPI:
    def get(self, path: str) -> Callable[[F], F]: ...
    def post(self, path: str) -> Callable[[F], F]: ...
""",
    "fastapi/responses.pyi": """
from collections.abc import AsyncIterable
class StreamingResponse:
    def __init__(self, content: AsyncIterable[str], *, media_type: str | None = None) -> None: ...
""",
    "celery/__init__.pyi": """
class Task:
    name: str
""",
    "celery/signals.pyi": """
from collections.abc import Callable
from typing import TypeVar
F = TypeVar("F", bound=Callable[..., object])
class Signal:
    def connect(self, function: F) -> F: ...
task_failure: Signal
task_success: Signal
""",
}
#: What a program leaves to its reader.
BEFORE = {"A plain script": "def save() -> None: ...\n"}


def programs() -> dict[str, str]:
    """The Python of each section; that of one page in several blocks is one program each."""
    found: dict[str, str] = {}
    text = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)):
            name = f"{re.sub(r'[^a-z]', '_', title.lower())}_{number}.py"
            found[name] = BEFORE.get(title, "") + block
    return found


@pytest.mark.volume
def test_the_programs_of_the_page_pass_mypy_strict(tmp_path: Path) -> None:
    written = programs()
    assert len(written) >= 6
    for name, text in (STUBS | written).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "",
        "--cache-dir",
        str(ROOT / ".mypy_cache" / "pages"),
    ]
    env = os.environ | {"MYPYPATH": str(ROOT)}
    ran = subprocess.run([*words, *written], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
