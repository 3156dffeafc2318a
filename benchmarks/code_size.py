"""Counts lines, modules, and public names: is the next version of the code smaller? `python -m benchmarks.code_size`.

A public name is a class or a function of a module that begins with no underscore. `--over` lists what is longer than a
file or a function should be.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
PRODUCT = ("eventbus", "workers")
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
LUA_FUNCTION = re.compile(r"( *)local function (\w+)\(.*\)$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Size(msgspec.Struct):
    """The size of one room, or of all."""

    lines: int = 0
    lua_lines: int = 0
    modules: int = 0
    classes: int = 0
    functions: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(mine + its for mine, its in zip(*map(msgspec.structs.astuple, (self, other)), strict=True)))


def measure(path: Path) -> Size:
    """Count one file, Python or Lua."""
    lines = len(path.read_text("utf-8").splitlines())
    if path.suffix == ".lua":
        return Size(lua_lines=lines)
    public = [node for node in ast.parse(path.read_text("utf-8")).body if _is_public(node)]
    classes = sum(isinstance(node, ast.ClassDef) for node in public)
    return Size(lines, 0, 1, classes, len(public) - classes)


def rooms() -> dict[str, Size]:
    """Return the size of each room: a folder of `eventbus`, what lies beside them, `workers`."""
    found: dict[str, Size] = {}
    for path in _files():
        inside = path.relative_to(ROOT).parts[:-1]
        room = "/".join(inside[:2])
        found[room] = found.get(room, Size()) + measure(path)
    return found


def too_long() -> Iterator[str]:
    """Name files and functions that are longer than they should be, a line each."""
    for path in _files():
        text, place = path.read_text("utf-8"), path.relative_to(ROOT)
        if (lines := len(text.splitlines())) > LONGEST_FILE:
            yield f"{place}: {lines} lines"
        functions = _python_functions(text) if path.suffix == ".py" else _lua_functions(text)
        for name, line, long in functions:
            if long > LONGEST_FUNCTION:
                yield f"{place}:{line}: {name} has {long} lines"


def _python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, line and length of each."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            yield node.name, node.lineno, (node.end_lineno or 0) - node.lineno + 1


def _lua_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The same of Lua, in which an `end` as far to the right as its function ends it."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if found := LUA_FUNCTION.match(line):
            end = next(at for at in range(number, len(lines)) if lines[at] == f"{found[1]}end")
            yield found[2], number + 1, end - number + 1


def main() -> None:
    """Print the table, or with `--over` what is too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--over", action="store_true", help="list files and functions that are too long")
    if parser.parse_args().over:
        print("\n".join(too_long()))
        return
    found = rooms()
    print(f"{'room':24}" + "".join(f"{name.replace('_', ' '):>11}" for name in Size.__struct_fields__))
    for room, size in [*sorted(found.items()), ("all", sum(found.values(), Size()))]:
        print(f"{room:24}" + "".join(f"{number:11}" for number in msgspec.structs.astuple(size)))


def _files() -> Iterator[Path]:
    for folder in PRODUCT:
        yield from sorted([*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.lua")])


def _is_public(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_")


if __name__ == "__main__":
    main()
