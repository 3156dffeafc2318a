"""No module pretends to be another one, and no object of a library is patched: such code breaks with each release."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Internals of the standard library that were patched before.
PRIVATE = {"asyncio.sslproto", "asyncio.selector_events"}
#: A file without any of these words is not parsed.
WORDS = re.compile(r"sys\.modules|__class__|ModuleType|sslproto|selector_events")


def patches(source: str) -> Iterator[str]:
    """Yield the patches in *source*: assignments to `sys.modules[…]` and `….__class__`, stand-ins, private modules."""
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        for target in targets:
            if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "sys.modules":
                yield ast.unparse(node)
            if isinstance(target, ast.Attribute) and target.attr == "__class__":
                yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "ModuleType":
            yield ast.unparse(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {str(getattr(node, "module", "")), *(name.name for name in node.names)}
            yield from sorted(names & PRIVATE)


def test_the_product_patches_no_library() -> None:
    texts = {
        str(file): file.read_text("utf-8") for file in (*ROOT.glob("eventbus/**/*.py"), *ROOT.glob("workers/*.py"))
    }
    assert {name: found for name, text in texts.items() if WORDS.search(text) and (found := list(patches(text)))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "sys.modules['ssl'] = stand_in",
        "del sys.modules['ssl']",
        "server.__class__ = Ours",
        "types.ModuleType('ssl')",
        "import asyncio.sslproto",
        "from asyncio.sslproto import SSLProtocol",
    ],
)
def test_each_patch_is_found(source: str) -> None:
    assert WORDS.search(source)
    assert list(patches(source))
