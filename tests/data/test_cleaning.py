import random
import string
import unicodedata

import pytest

from lingraft.config.text import Cleaning
from lingraft.data.cleaning import (
    DIGITS,
    REPETITION,
    SYMBOLS,
    TOO_LONG,
    TOO_SHORT,
    normalise,
    reject_reason,
)

SETTINGS = Cleaning()


def clean(text: str) -> str:
    return normalise(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so\u00adgar", "sogar"),
        ("\ufeffzero\u200bwidth\u2060", "zerowidth"),
        ("bell\x07 and escape\x1b[0m", "bell and escape[0m"),
        ("private \ue000 and unassigned \u0378", "private and unassigned"),
        ("half \ud800 a pair", "half a pair"),
        ("stray\u200djoiner", "strayjoiner"),
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


@pytest.mark.parametrize("space", ["\t", "\u3000", "\u2028", " \x0b\u2003 "])
def test_white_space_becomes_single_spaces(space: str) -> None:
    assert clean(f"{space}one{space}two{space}") == "one two"


def test_text_is_brought_into_nfc_and_no_other_form() -> None:
    apart = unicodedata.normalize("NFD", "Grüße, Ελλάδα, cà phê")
    assert clean(apart) == unicodedata.normalize("NFC", apart) != apart
    assert clean("ﬁne ²") == "ﬁne ²"


@pytest.mark.parametrize(
    "text",
    [
        "It was a bright cold day in April, and the clocks were striking thirteen.",
        "यह एक छोटा सा वाक्य है, और इसमें मात्राएँ हैं।",
        "นายกรัฐมนตรีกล่าวว่ารัฐบาลจะดำเนินการตามนโยบายที่ได้แถลงไว้",
        "四月里一个晴朗寒冷的日子，钟敲了十三下。",
        "In 1984 he was 39 years old.",
        "Leave off! Leave off! I told him to leave off.",
    ],
)
def test_running_text_is_kept_in_every_script(text: str) -> None:
    assert reject_reason(text, SETTINGS) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("XIV", TOO_SHORT),
        ("word " * 30_000, TOO_LONG),
        ("02-208-4174-8 or 3423", DIGITS),
        ("১২৩৪৫৬৭৮৯ টাকা", DIGITS),
        ("**************** 29 August", SYMBOLS),
        ("🎉🎉🎉🎉🎉🎉 wow", SYMBOLS),
        ("buy it now " * 20, REPETITION),
        ("Loo" + "o" * 40 + "l", REPETITION),
        ("哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈", REPETITION),
    ],
)
def test_what_is_no_running_text_goes_by_its_reason(text: str, reason: str) -> None:
    assert reject_reason(text, SETTINGS) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("shrt", TOO_SHORT),
        ("short", None),
        ("abcdef 123", None),
        ("abcde 1234", DIGITS),
        ("abcde !!!!", None),
        ("abcd !!!!!", SYMBOLS),
    ],
)
def test_each_limit_is_the_last_value_that_is_kept(text: str, reason: str | None) -> None:
    assert reject_reason(text, SETTINGS) == reason


def test_random_words_are_no_repetition_however_long_the_text() -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices(string.ascii_lowercase, k=4)) for _ in range(500)]
    assert reject_reason(" ".join(draw.choices(words, k=5000)), SETTINGS) is None
    assert reject_reason("".join(draw.choices(words, k=5000)), SETTINGS) is None
