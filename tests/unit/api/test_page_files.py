"""The page's files: what its index loads is there, and little enough for a slow line."""

from __future__ import annotations

import hashlib
import json
import re

from eventbus.api.page.files import PageFiles

FILES = PageFiles().files
INDEX = FILES["index.html"].plain.decode()
#: Bytes over the wire, gzip, of all that the page itself is.
BUDGET = 120_000


def linked() -> list[str]:
    return re.findall(r'(?:href|src)="/page/([^"]+)"', INDEX)


def test_the_index_names_each_script_style_and_picture_once_and_no_other() -> None:
    named = linked()
    assert sorted(named) == sorted(name for name in FILES if name.endswith((".js", ".css", ".svg")))
    assert len(set(named)) == len(named)


def test_all_of_it_is_no_more_than_a_slow_line_bears() -> None:
    wire = {name: min(len(FILES[name].plain), len(FILES[name].packed)) for name in ["index.html", *linked()]}
    assert sum(wire.values()) <= BUDGET, wire


def test_modules_import_what_there_is() -> None:
    for name, file in FILES.items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            imported = re.findall(r'from "\./([^"]+)"', file.plain.decode())
            assert set(imported) <= set(FILES), name


def test_others_code_is_what_its_manifest_says() -> None:
    for package in json.loads(FILES["vendor/manifest.json"].plain):
        for file in package["files"]:
            assert hashlib.sha256(FILES[f"vendor/{file['name']}"].plain).hexdigest() == file["sha256"], file["name"]
