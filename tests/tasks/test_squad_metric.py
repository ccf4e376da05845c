"""Official definitions, by examples worked out by hand."""

import pytest

from lingraft.errors import RecipeError
from lingraft.tasks.squad_metric import Evaluation, Score, score

SQUAD, MLQA = Evaluation.SQUAD, Evaluation.MLQA


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Old-Mill, a mill!", ["oldmill", "mill"]),
        ("an  apple\n(theatre)", ["apple", "theatre"]),
        ("Die Mühle der Stadt", ["die", "mühle", "der", "stadt"]),
        ("河边，磨坊", ["河边，磨坊"]),
        ("गेहूँ।", ["गेहूँ।"]),
        ("The", []),
    ],
)
def test_squad_knows_english_articles_and_ascii_punctuation_only(text: str, words: list[str]) -> None:
    assert SQUAD.words(text, "de") == SQUAD.words(text, "zh") == words


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "The “Old” Mill — an apple", ["old", "mill", "apple"]),
        ("de", "Die Mühle, eines der Häuser; eins", ["mühle", "häuser", "eins"]),
        ("es", "¿La viña? ¡El molino de las Ánimas!", ["viña", "molino", "de", "ánimas"]),
        ("vi", "Cái cối xay của làng là những", ["cối", "xay", "làng"]),
        ("hi", "नदी, का पानी।", ["नदी", "का", "पानी"]),
        ("ar", "المطحنة، والقمح", ["مطحنة", "و", "قمح"]),
        ("ar", "سؤال؟", ["سؤ"]),
        ("zh", "磨坊（Mill House）在1998年。", ["磨", "坊", "mill", "house", "在", "1998", "年"]),
        ("zh-TW", "the 磨", ["the", "磨"]),
    ],
)
def test_mlqa_has_rules_of_its_own_for_each_language(language: str, text: str, words: list[str]) -> None:
    assert MLQA.words(text, language) == words


def test_f1_weighs_the_words_in_common_by_how_often_they_occur() -> None:
    # Words "b b c" and "b b b d": two in common, precision 2/3, recall 2/4, F1 4/7.
    assert score("b b c", ["b b b d"], SQUAD, "en") == pytest.approx((0.0, 4 / 7))


def test_each_score_is_the_best_over_the_gold_answers() -> None:
    found = score("the old mill", ["river", "old mill!", "old"], SQUAD, "en")
    assert found == Score(1.0, 1.0)
    # "old river" with "old": P 1/2, R 1, F1 2/3; with "old river mill": P 1, R 2/3, F1 4/5.
    assert score("old river", ["old", "old river mill"], SQUAD, "en") == pytest.approx((0.0, 4 / 5))


def test_chinese_answers_share_characters_by_mlqa_and_nothing_by_squad() -> None:
    # 老磨坊 and 磨坊: P 2/3, R 1, F1 4/5.
    assert score("老磨坊", ["磨坊"], MLQA, "zh").f1 == pytest.approx(4 / 5)
    assert score("老磨坊", ["磨坊"], SQUAD, "zh").f1 == 0


def test_answers_without_a_word_left_match_exactly_but_have_no_word_in_common() -> None:
    assert score("The", ["a"], SQUAD, "en") == Score(1.0, 0.0)
    assert score("", ["mill"], SQUAD, "en") == Score(0.0, 0.0)


@pytest.mark.parametrize("language", ["tr", "de2"])
def test_mlqa_refuses_a_language_that_it_does_not_define(language: str) -> None:
    with pytest.raises(RecipeError, match=rf"defined for \['ar', .*'zh'\], not for '{language}'.*'squad'"):
        score("a", ["a"], MLQA, language)
    SQUAD.require(language)
