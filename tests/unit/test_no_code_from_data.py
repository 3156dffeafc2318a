"""Nothing in the tree makes code of data: no pickle, eval, shell, nor YAML that builds objects. See SECURITY.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("eventbus", "workers", "tests", "benchmarks", "examples", "docs")

#: Loading what they wrote runs what is written there.
MODULES = frozenset({"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "jsonpickle", "marshal", "shelve"})
BUILTINS = frozenset({"eval", "exec", "compile", "__import__"})
#: Module → what it must not be asked for.
CALLS = {
    "os": frozenset({"system", "popen"}),
    "subprocess": frozenset({"getoutput", "getstatusoutput"}),
    "asyncio": frozenset({"create_subprocess_shell"}),
    "yaml": frozenset({"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}),
}

#: File → what is found there, and why it may.
ALLOWED = {
    # shows that events survive being sent to another process, which is what multiprocessing does with them
    "tests/unit/model/test_event.py": {"pickle"},
    # breaks the correlator's own source, to show that the tests would see it
    "tests/conformance/test_broken_function.py": {"exec", "compile"},
    # a loader of its own, which makes plain values only
    "eventbus/agent/config/manifest.py": {"yaml.load_all"},
    # a probe's field of that name
    "eventbus/model/objects/container.py": {"exec"},
    "tests/integration/test_probes.py": {"exec"},
}


def found_in(source: str) -> set[str]:
    """The names of what must not be there."""
    return {name for node in ast.walk(ast.parse(source)) for name in _dangers(node)}


def _dangers(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names if name.name.partition(".")[0] in MODULES)
        case ast.ImportFrom(module=str(module), names=names):
            if module.partition(".")[0] in MODULES:
                yield module
            yield from (f"{module}.{name.name}" for name in names if name.name in CALLS.get(module, ()))
        case ast.Name(id=name) if name in BUILTINS:
            yield name
        case ast.Attribute(value=ast.Name(id=module), attr=name) if name in CALLS.get(module, ()):
            yield f"{module}.{name}"
        case ast.Call(keywords=keywords):
            for keyword in keywords:
                if keyword.arg == "shell" and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    yield "shell=True"


_CALLED = "|".join(sorted({"shell"}.union(*CALLS.values())))
#: A file without any of these words is not parsed, which takes ten times as long as looking for them.
WORDS = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(BUILTINS | MODULES))})\b|\b(?:{_CALLED})\b")


def test_nothing_in_the_tree_makes_code_of_data() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    found = {
        str(path.relative_to(ROOT)): names
        for path in files
        if WORDS.search(source := path.read_text(encoding="utf-8")) and (names := found_in(source))
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads as safe", "pickle"),
        ("import marshal as m", "marshal"),
        ("import shelve", "shelve"),
        ("eval(text)", "eval"),
        ("run = exec", "exec"),
        ("__import__(name)", "__import__"),
        ("yaml.load(text, Loader=yaml.Loader)", "yaml.load"),
        ("from yaml import unsafe_load", "yaml.unsafe_load"),
        ("os.system(text)", "os.system"),
        ("subprocess.run(text, shell=True)", "shell=True"),
        ("Popen(text, shell=flag)", "shell=True"),
        ("await asyncio.create_subprocess_shell(text)", "asyncio.create_subprocess_shell"),
    ],
)
def test_each_of_them_would_be_found(source: str, name: str) -> None:
    assert WORDS.search(source)
    assert found_in(source) == {name}


@pytest.mark.parametrize(
    "source", ["yaml.safe_load(text)", "re.compile(text)", "subprocess.run(words, shell=False)", "client.eval()"]
)
def test_what_only_looks_like_it_is_let_be(source: str) -> None:
    assert found_in(source) == set()
