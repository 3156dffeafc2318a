from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.util.text import byte_length, cut_bytes, is_clean, printable, repair

anything = st.text(st.characters())


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        ("a\0b", "a\ufffdb"),
        ("\0\0", "\ufffd\ufffd"),
        ("ü\0", "ü\ufffd"),
        ("bad byte \udcff.", "bad byte \ufffd."),
        ("\ud800", "\ufffd"),
        ("\ud800x\udc00", "\ufffdx\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
    ],
)
def test_nul_and_lone_surrogates_become_replacement_characters(broken: str, repaired: str) -> None:
    assert repair(broken) == repaired


@given(anything)
def test_repaired_text_can_be_stored_and_nothing_else_has_changed(text: str) -> None:
    repaired = repair(text)
    assert "\0" not in repaired
    assert repaired.encode().decode() == repaired
    assert is_clean(text) == (repaired is text)


@pytest.mark.parametrize("text", ["Grüße aus Zürich", "日本語", "😀", "שלום", "back\\slash \\n"])
def test_text_of_any_language_and_backslashes_stay(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\r\n", r"two\x0alines\x0d\x0a"),
        ("\x1b[2Jgone\x07", r"\x1b[2Jgone\x07"),
        ("\t\0\x7f", r"\x09\x00\x7f"),
        ("\x85\x9b31m", r"\x85\x9b31m"),
        ("a\u2028b\u2029", r"a\u2028b\u2029"),
        ("\u202eexe.txt\u202c", r"\u202eexe.txt\u202c"),
        ("\u2066x\u2069\u200e\u200f\u061c", r"\u2066x\u2069\u200e\u200f\u061c"),
        ("\ud800\udfff", r"\ud800\udfff"),
    ],
)
def test_what_could_fool_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc..."),
        ("äöü", 6, "äöü"),
        ("äöüx", 6, "ä..."),
        ("😀😀", 7, "😀..."),
        ("😀😀", 6, "..."),
        ("abcd", 3, "..."),
        ("abcd", 1, "."),
        ("abcd", 0, ""),
        ("", 0, ""),
    ],
)
def test_long_text_is_cut_at_a_character_and_ends_with_dots(text: str, limit: int, cut: str) -> None:
    assert cut_bytes(text, limit) == cut


@given(anything, st.integers(0, 40))
def test_cut_text_keeps_to_the_limit_and_is_a_beginning(text: str, limit: int) -> None:
    cut = cut_bytes(text, limit)
    assert byte_length(cut) <= limit
    assert cut is text or text.startswith(cut.removesuffix("...")) or limit < 3
