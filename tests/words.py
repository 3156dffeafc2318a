"""Count the words that our style bans, in comments, docstrings, messages and docs.

`python -m tests.words` prints the counts by folder; `python -m tests.words PATH…` prints each place below these paths.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "eventbus",
    "workers",
    "tests",
    "benchmarks",
    "examples",
    "docs",
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
)
#: A reader must guess which thing they stand for. Questions and quotations are rare enough to be counted as well.
BANNED = {
    "what": r"what(?:ever)?",
    "who": r"who(?:m|se|ever)?",
    "nobody": r"nobody|somebody|anybody|everybody",
    "tell": r"tells?|told|untold|telling",
    "behind": r"behind",
    "beside": r"beside|anew|whereof|thereof|therein|hereof",
}
_PATTERN = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in BANNED.items()), re.IGNORECASE)


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose in a file with their numbers: comments and strings of code, text of pages."""
    source = file.read_text()
    if file.suffix == ".py":
        kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in kinds and " " in token.string:  # a string of one word is a name, not prose
                for offset, line in enumerate(token.string.splitlines()):
                    yield token.start[0] + offset, line
    elif file.suffix == ".lua":
        for number, line in enumerate(source.splitlines(), 1):
            if "--" in line:
                yield number, line.split("--", 1)[1]
    else:
        code = False
        for number, line in enumerate(source.splitlines(), 1):
            code ^= line.startswith("```")
            if not code and not line.startswith("    "):
                yield number, re.sub(r"`[^`]*`|(?<=\])\([^)]*\)", "", line)


def files(paths: tuple[str, ...] = FOLDERS) -> Iterator[Path]:
    for name in paths:
        path = (ROOT / name).resolve()
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.suffix in (".py", ".lua", ".md") and not {"vendor", "_build", "vectors"} & set(file.parts):
                yield file


def places(paths: tuple[str, ...] = FOLDERS) -> Iterator[tuple[Path, int, str, str]]:
    """Yield the file, the line number, the kind of word and the line of each banned word."""
    for file in files(paths):
        if file != Path(__file__) and _PATTERN.search(file.read_text()):  # before it is split into tokens
            for number, line in prose(file):
                for match in _PATTERN.finditer(line):
                    yield file, number, str(match.lastgroup), line.strip()


def main() -> None:
    if sys.argv[1:]:
        for file, number, word, line in places(tuple(sys.argv[1:])):
            print(f"{file.relative_to(ROOT)}:{number}: {word}: {line}")
        return
    table: dict[str, Counter[str]] = {}
    for file, _, word, _ in places():
        parts = file.relative_to(ROOT).parts
        table.setdefault("/".join(parts[: 2 if len(parts) > 2 else 1]), Counter())[word] += 1
    for folder, words in sorted(table.items()):
        print(f"{folder:24}{sum(words.values()):6}", *(f"{word} {words[word]}" for word in BANNED))
    print(f"{'total':24}{sum(sum(words.values()) for words in table.values()):6}")


if __name__ == "__main__":
    main()
