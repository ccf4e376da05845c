from itertools import pairwise

import pytest

from lingraft.serving.handlers.words import words

RLM, ZWNJ, ZWSP = "\u200f", "\u200c", "\u200b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna lives in Rome.", ["Anna", "lives", "in", "Rome", "."]),
        ("(Rome), R.H. Saunders!", ["(", "Rome", ")", ",", "R.H.", "Saunders", "!"]),
        ("d'Ivoire O’Neill", ["d'Ivoire", "O’Neill"]),
        ("गेहूँ पीसती है।", ["गेहूँ", "पीसती", "है", "।"]),
        (f"{RLM}القمح{RLM}، النهر", ["القمح", "،", "النهر"]),
        (f"می{ZWNJ}روم.", [f"می{ZWNJ}روم", "."]),
        ("老磨坊 abc", ["老", "磨", "坊", "abc"]),
        ("cafe\u0301 au lait", ["cafe\u0301", "au", "lait"]),
        (f"{ZWSP} \u2066\u2069 ", []),
        ("...", [".", ".", "."]),
        ("", []),
    ],
)
def test_words_are_those_of_the_data_sets(text: str, expected: list[str]) -> None:
    found = [text[word.start : word.end] for word in words(text)]
    assert [word.strip(RLM + ZWSP) for word in found] == expected


def test_words_do_not_overlap_and_rise() -> None:
    text = f'"Κάτι" {RLM}(γράφει), 老磨坊 R.H. -- x'
    found = words(text)
    assert all(one.end <= other.start for one, other in pairwise(found))
