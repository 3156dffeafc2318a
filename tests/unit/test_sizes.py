"""The sizes of files and functions: what is larger is split, or named here with the others that read better whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES = 400
FUNCTION_LINES = 60
#: A rule a step, in the order of the rules; all that one function reads and writes; a view with its keys.
WHOLE = {".lua": {"new_decision", "new_state", "correlate_and_store", "trim"}, ".js": {"Overview"}}


def product_files(*suffixes: str) -> Iterator[Path]:
    for room in ("eventbus", "workers"):
        for file in sorted((ROOT / room).rglob("*")):
            if file.suffix in suffixes and "vendor" not in file.parts:
                yield file


def python_functions(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def lua_functions(source: str) -> Iterator[tuple[str, int]]:
    """Functions that no other function holds: they begin and end in the first column."""
    for found in re.finditer(r"^local function (\w+).*?^end$", source, re.MULTILINE | re.DOTALL):
        yield found[1], found[0].count("\n") + 1


def script_functions(source: str) -> Iterator[tuple[str, int]]:
    for found in re.finditer(r"^(?:export )?(?:async )?function (\w+).*?^}$", source, re.MULTILINE | re.DOTALL):
        yield found[1], found[0].count("\n") + 1


FUNCTIONS = {".py": python_functions, ".lua": lua_functions, ".js": script_functions}


def test_no_product_file_is_longer_than_a_reader_holds_in_his_head() -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in product_files(".py", ".lua", ".js", ".css")}
    assert len(lengths) > 500
    assert {str(file.relative_to(ROOT)): lines for file, lines in lengths.items() if lines > FILE_LINES} == {}


@pytest.mark.parametrize("suffix", FUNCTIONS)
def test_no_function_is_longer_than_a_screen_but_those_that_read_better_whole(suffix: str) -> None:
    found = [found for file in product_files(suffix) for found in FUNCTIONS[suffix](file.read_text())]
    assert len(found) > 50
    longer = {name for name, lines in found if lines > FUNCTION_LINES}
    assert longer == WHOLE.get(suffix, set())
