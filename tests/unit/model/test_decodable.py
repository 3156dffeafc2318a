"""What is decoded is made ready first: threads that are the first to decode to one struct must not end the process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

#: Four threads decode to a type that nobody has decoded to before; again and again, since it is a race.
RACE = """
import sys, threading, types
import msgspec
from eventbus.model.decodable import decodable

SOURCE = "".join(
    f"class Part{n}(msgspec.Struct):\\n  more: list['Part{n + 1}'] = []\\n  words: dict[str, str] | None = None\\n"
    for n in range(20)
)
sys.setswitchinterval(1e-6)
for run in range(100):
    module = types.ModuleType(f"parts{run}")
    sys.modules[module.__name__] = module
    exec("import msgspec\\n" + SOURCE + "class Part20(msgspec.Struct):\\n  n: int = 0", vars(module))
    together = threading.Barrier(4)
    def decode():
        together.wait()
        found = msgspec.json.decode(b'{"more": [{"words": {"a": "b"}}]}', type=decodable(module.Part0))
        assert found.more[0].words == {"a": "b"}
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("whole")
"""


def test_threads_that_are_the_first_to_decode_to_a_type_do_not_end_the_process() -> None:
    ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", RACE], capture_output=True, text=True, cwd=ROOT)
    assert ended.stdout == "whole\n", ended.stderr[-2000:]
    assert ended.stderr == ""


#: Arguments by which msgspec is told what to decode to, and what needs nothing made ready: no struct is in it.
_WORDS = re.compile(r"msgspec\.(convert|(json|msgpack)\.(Decoder|decode))\b")  # in each file that decodes
_NO_STRUCT = {"dict[str, str]", "dict[str, Any]", "list[msgspec.Raw]", "tuple[dict[str, str], dict[str, str]]"}


def _decoded_to(tree: ast.AST) -> Iterator[ast.expr]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        match ast.unparse(call.func):
            case "msgspec.convert":
                yield call.args[1]
            case "msgspec.json.Decoder" | "msgspec.msgpack.Decoder":
                yield from call.args[:1]
            case "msgspec.json.decode" | "msgspec.msgpack.decode":
                yield from (each.value for each in call.keywords if each.arg == "type")


@pytest.mark.parametrize("room", ["eventbus", "workers"])
def test_whatever_is_decoded_to_is_made_ready(room: str) -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{shape.lineno} {ast.unparse(shape)}"
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.name != "decodable.py"
        if _WORDS.search(text := path.read_text())
        for shape in _decoded_to(ast.parse(text))
        if not ast.unparse(shape).startswith("decodable(") and ast.unparse(shape) not in _NO_STRUCT
    ]
    assert not bare, "say decodable(…) around what msgspec decodes to:\n" + "\n".join(bare)
