"""Lay the pages out for the site, render them with zensical, and fail when a link inside them leads nowhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "docs" / "_build"
PAGES = BUILD / "pages"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ *(```|~~~)")


def main() -> int:
    """Build the site; return 1 and print the broken links, if there are any."""
    shutil.rmtree(BUILD, ignore_errors=True)
    broken = [problem for page in pages() for problem in lay_out(page)]
    for problem in broken:
        print(f"docs: {problem}", file=sys.stderr)
    if broken:
        return 1
    for asset in (ROOT / "docs").glob("*.svg"):
        shutil.copy(asset, PAGES)
    for folder in ("files", "pictures"):
        shutil.copytree(ROOT / "docs" / folder, PAGES / folder)
    program = Path(sys.executable).with_name("zensical")
    built = subprocess.run([program, "build", "--strict", "--clean"], cwd=ROOT, check=False)
    if built.returncode == 0:
        print(f"docs: {len(pages())} pages in {BUILD.relative_to(ROOT)}/site")
    return built.returncode


def pages() -> list[Path]:
    """README, SECURITY, CONTRIBUTING, and all below docs/."""
    inner = [page for page in (ROOT / "docs").rglob("*.md") if BUILD not in page.parents]
    return sorted([*ROOT.glob("*.md"), *inner])


def place_of(page: Path) -> Path:
    """Return the path of a page on the site: those of docs/ at its top, the README as its first."""
    inner = page.relative_to(ROOT / "docs") if ROOT / "docs" in page.parents else page.relative_to(ROOT)
    return Path("index.md") if inner == Path("README.md") else inner


def lay_out(page: Path) -> Iterator[str]:
    """Write one page, its links as they are on the site; yields those that lead nowhere."""
    problems: list[str] = []

    def mended(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        path, hash_, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return found[0]
        there = (page.parent / unquote(path)).resolve()
        if not there.exists():
            problems.append(f"{page.relative_to(ROOT)}: {target}")
        elif there.suffix == ".md":
            return f"{picture}[{text}]({_from(page, place_of(there))}{hash_}{anchor})"
        elif ROOT / "docs" in there.parents:
            return f"{picture}[{text}]({_from(page, there.relative_to(ROOT / 'docs'))})"
        return text  # a file of the repository, which the site does not have

    lines, in_code = [], False
    for line in page.read_text("utf-8").splitlines():
        in_code ^= bool(_FENCE.match(line))
        lines.append(line if in_code else _LINK.sub(mended, line))
    target = PAGES / place_of(page)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n", "utf-8")
    yield from problems


def _from(page: Path, place: Path) -> str:
    """The way from a page to a place of the site."""
    up = len(place_of(page).parts) - 1
    return "../" * up + place.as_posix()


if __name__ == "__main__":
    sys.exit(main())
