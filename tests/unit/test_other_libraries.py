"""The product uses other libraries through their public parts: no stand-ins for modules, no changed classes.

It reads source, because each of these was once here and worked, until the next version of the library.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "a module that stands in for another": r"sys\.modules\[[^]]+\] *=|del sys\.modules|\bModuleType\(",
    "an object with another class": r"\.__class__ *= ",
    "asyncio's private parts": r"\b(?:sslproto|selector_events)\b|\._ssl_(?:protocol|buffer)",
    "aiohttp's private parts": r"\b_make_server\b|\._(?:kwargs|current_request|request_count|payload_writer)\b",
    "prometheus_client's private parts": r"\._child_samples\b|\._metrics\b(?=\.values)",
}


def test_the_product_uses_public_parts_only() -> None:
    files = [*ROOT.glob("eventbus/**/*.py"), *ROOT.glob("workers/**/*.py")]
    assert len(files) > 100
    found = [
        f"{file.relative_to(ROOT)}: {practice}: {match[0]}"
        for file in files
        for text in [file.read_text()]
        for practice, words in FORBIDDEN.items()
        for match in re.finditer(words, text)
    ]
    assert found == []
