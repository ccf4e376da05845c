import unicodedata

import pytest

from lingraft.data.cleaning.characters import normalise
from lingraft.data.cleaning.corpus_stats import INVISIBLE, NORMALISED, WHITE_SPACE, CleaningCounts


def clean(text: str) -> str:
    return normalise(text, "NFC", CleaningCounts())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so\u00adgar", "sogar"),
        ("\ufeffzero\u200bwidth\u2060", "zerowidth"),
        ("\u202eright to left\u202c", "right to left"),
        ("bell\x07 and escape\x1b[0m", "bell and escape[0m"),
        ("private \ue000 and unassigned \u0378", "private and unassigned"),
        ("half \ud800 a pair", "half a pair"),
        ("stray\u200djoiner", "strayjoiner"),
        ("\u200b\u00ad", ""),
    ],
)
def test_what_nobody_can_see_goes(text: str, expected: str) -> None:
    assert clean(text) == expected


@pytest.mark.parametrize(
    "text",
    ["می\u200cخواهم", "क्\u200dष", "മലയാള\u0d4d\u200d", "\u06dd١", "สวัสดี", "😀 emoji", "naïve — “quoted”", "𐌰𐌱𐌲"],
    ids=["Persian", "Hindi", "Malayalam", "end of verse", "Thai", "emoji", "Latin", "Gothic"],
)
def test_what_spelling_needs_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("space", ["\t", "\xa0", "\u3000", "\u2028", "\x85", "   ", "\r", " \x0b\u2003 "])
def test_white_space_becomes_single_spaces(space: str) -> None:
    assert clean(f"{space}one{space}two{space}") == "one two"


def test_text_is_brought_into_the_form_asked_for_and_no_other() -> None:
    apart = unicodedata.normalize("NFD", "Grüße, Ελλάδα, cà phê")
    assert clean(apart) == unicodedata.normalize("NFC", apart) != apart
    assert normalise(apart, "none", CleaningCounts()) == apart
    assert clean("ﬁne ²") == "ﬁne ²"


def test_characters_that_go_are_counted_by_reason() -> None:
    characters = CleaningCounts()
    text = "a\u200bb\xa0 c e\u0301"
    kept = normalise(text, "NFC", characters)
    assert kept == "ab c é"
    assert characters.dropped == {INVISIBLE: 1, WHITE_SPACE: 1, NORMALISED: 1}
    assert characters.read + len(kept) == len(text)


def test_normalisation_that_adds_characters_is_counted_below_zero() -> None:
    characters = CleaningCounts()
    assert len(normalise("\u0958", "NFC", characters)) == 2
    assert characters.dropped == {NORMALISED: -1}


def test_cleaning_twice_changes_nothing_more() -> None:
    once = clean("e\u200b\u0301 \u200b  x\u00a0")
    assert clean(once) == once == "é x"
