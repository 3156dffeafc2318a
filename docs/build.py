"""Render README, CONTRIBUTING and docs/ as HTML into docs/_build, and fail when a link inside them leads nowhere."""

from __future__ import annotations

import re
import shutil
import sys
from html import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "_build"
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 sans-serif }}
pre {{ overflow-x: auto; background: #f4f4f4; padding: .6rem }}
td, th {{ padding: .2rem .6rem; text-align: left }}</style>
{body}</html>
"""


def main() -> int:
    shutil.rmtree(OUT, ignore_errors=True)
    broken = [link for page in pages() for link in render(page)]
    for link in broken:
        print(f"docs: {link}", file=sys.stderr)
    print(f"docs: {len(pages())} pages in {OUT.relative_to(ROOT)}")
    return 1 if broken else 0


def pages() -> list[Path]:
    inner = [page for page in (ROOT / "docs").rglob("*.md") if OUT not in page.parents]
    return sorted([*ROOT.glob("*.md"), *inner])


def render(page: Path) -> list[str]:
    """Write one page; the links that lead nowhere."""
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(page.read_text(encoding="utf-8"))
    links = [link for token in tokens for link in (token.children or []) if link.type in ("link_open", "image")]
    broken = [f"{page.relative_to(ROOT)}: {href}" for link in links if (href := mend(link, page))]
    add_anchors(tokens)
    target = OUT / page.relative_to(ROOT).with_suffix(".html")
    target.parent.mkdir(parents=True, exist_ok=True)
    body = markdown.renderer.render(tokens, markdown.options, {})
    target.write_text(PAGE.format(title=escape(page.stem), body=body), encoding="utf-8")
    return broken


def mend(link: Token, page: Path) -> str | None:
    """Point a link between pages at the HTML; returns it when there is nothing behind it."""
    attribute = "src" if link.type == "image" else "href"
    href = str(link.attrs[attribute])
    path, _, anchor = href.partition("#")
    if re.match(r"[a-z]+:", href):
        return None
    target = (page.parent / unquote(path)).resolve() if path else page
    if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
        return href
    if target.suffix == ".md" and path:
        link.attrs[attribute] = path.removesuffix(".md") + ".html" + (f"#{anchor}" if anchor else "")
    return None


def anchors(page: Path) -> set[str]:
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    return {slug(after.content) for token, after in pairwise(tokens) if token.type == "heading_open"}


def add_anchors(tokens: list[Token]) -> None:
    for token, after in pairwise(tokens):
        if token.type == "heading_open":
            token.attrs["id"] = slug(after.content)


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
