"""The finished pages and rooms stay free of the words that our style bans: see `tests/words.py`."""

from __future__ import annotations

import pytest

from tests.words import ROOT, places

#: Pages and folders in plain English. Add one when it is finished; `python -m tests.words PATH` lists its words.
FINISHED = (
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs/agent.md",
    "docs/api-departures.md",
    "docs/api.md",
    "docs/architecture.md",
    "docs/cli.md",
    "docs/connect.md",
    "docs/correlation.md",
    "docs/glossary.md",
    "docs/http.md",
    "docs/keep.md",
    "docs/kinds.md",
    "docs/nodes.md",
    "docs/page.md",
    "docs/performance.md",
    "docs/production.md",
    "docs/readers.md",
    "docs/redis.md",
    "docs/reference.md",
    "docs/reliability.md",
    "docs/settings.md",
    "docs/sinks.md",
    "docs/spool.md",
    "docs/testing.md",
    "docs/troubleshooting.md",
    "docs/walkthrough.md",
    "docs/warnings.md",
    "docs/wire.md",
    "eventbus/agent",
    "eventbus/lifecycle",
)


@pytest.mark.parametrize("page", FINISHED)
def test_a_finished_page_has_no_banned_word(page: str) -> None:
    assert (ROOT / page).exists()
    assert [f"{page}:{number}: {word}: {line}" for _, number, word, line in places((page,))] == []
