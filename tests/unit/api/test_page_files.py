"""The page's files: the code of others is unchanged."""

from __future__ import annotations

import hashlib
import json

from eventbus.api.page.files import PageFiles

FILES = PageFiles().files


def test_others_code_is_what_its_manifest_says() -> None:
    for package in json.loads(FILES["vendor/manifest.json"].plain):
        for file in package["files"]:
            assert hashlib.sha256(FILES[f"vendor/{file['name']}"].plain).hexdigest() == file["sha256"], file["name"]
