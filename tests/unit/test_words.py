"""The finished pages and rooms stay free of the words that our style bans: see `tests/words.py`."""

from __future__ import annotations

import pytest

from tests.words import ROOT, places

#: Pages and folders in plain English. Add one when it is finished; `python -m tests.words PATH` lists its words.
FINISHED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs",
    "eventbus/agent",
    "eventbus/api",
    "eventbus/broker",
    "eventbus/lifecycle",
    "eventbus/cache",
    "eventbus/cli",
    "workers",
    "eventbus/client",
    "eventbus/correlate",
    "eventbus/errors.py",
    "eventbus/model",
    "eventbus/settings.py",
    "eventbus/store",
    "eventbus/util",
    "eventbus/consume",
    "eventbus/contrib",
    "eventbus/export",
    "eventbus/record",
    "eventbus/testing",
)


@pytest.mark.parametrize("path", FINISHED)
def test_a_finished_page_has_no_banned_word(path: str) -> None:
    assert (ROOT / path).exists()
    assert [(str(file.relative_to(ROOT)), number, word, line) for file, number, word, line in places((path,))] == []
