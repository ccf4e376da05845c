"""Exact match and F1 of extractive answers, as SQuAD v1.1 (Rajpurkar et al. 2016) and MLQA (Lewis et al. 2020) define.

Both normalise an answer to words, compare words, and take the best of a question's gold answers; they differ in what is
punctuation, which words are articles, and what a word is. Official results of XQuAD and TyDiQA-GoldP are by SQuAD's
definition in every language, those of MLQA by its own.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from lingraft.errors import RecipeError

_ENGLISH = ("a", "an", "the")
_ARTICLES: dict[str, tuple[str, ...]] = {
    "ar": (),
    "de": ("ein", "eine", "einen", "einem", "eines", "einer", "der", "die", "das", "den", "dem", "des"),
    "en": _ENGLISH,
    "es": ("un", "una", "unos", "unas", "el", "la", "los", "las"),
    "hi": (),
    "vi": ("của", "là", "cái", "chiếc", "những"),
    "zh": (),
}
"""MLQA's languages, and the words that it leaves out in each."""
_ARABIC_ARTICLE = "ال"
_HAN = re.compile("([\u4e00-\u9fa5])")


class Evaluation(StrEnum):
    """Definitions of an answer's words."""

    SQUAD = "squad"
    MLQA = "mlqa"

    def require(self, language: str) -> None:
        """Refuse a language for which there is no definition."""
        if self is Evaluation.MLQA and _base(language) not in _ARTICLES:
            raise RecipeError(
                f"MLQA's evaluation is defined for {list(_ARTICLES)}, not for {language!r}. "
                "Judge this language with the evaluation 'squad'."
            )

    def words(self, text: str, language: str) -> list[str]:
        """Return the lower-case words of an answer, without punctuation and articles.

        SQuAD treats all languages alike.
        """
        if self is Evaluation.SQUAD:
            bare = "".join(character for character in text.lower() if character not in string.punctuation)
            return _without(_ENGLISH, bare).split()
        self.require(language)
        return _mlqa_words(text, _base(language))


def _base(language: str) -> str:
    return language.split("-")[0]


def _mlqa_words(text: str, language: str) -> list[str]:
    bare = "".join(character for character in text.lower() if not _is_punctuation(character))
    if language == "ar":
        # As the official pattern works: it takes the article's letters for the article wherever they stand in a word.
        bare = bare.replace(_ARABIC_ARTICLE, " ")
    bare = _without(_ARTICLES[language], bare)
    return (_HAN.sub(r" \1 ", bare) if language == "zh" else bare).split()


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def _without(articles: tuple[str, ...], text: str) -> str:
    return re.sub(rf"\b(?:{'|'.join(articles)})\b", " ", text) if articles else text


class Score(NamedTuple):
    """Scores of an answer, or means over answers; shares, 0 to 1."""

    exact_match: float
    f1: float


def score(answer: str, gold: Sequence[str], evaluation: Evaluation, language: str) -> Score:
    """Return exact match and F1 of one answer, each the best over the question's gold answers.

    Without a common word F1 is 0, also where both answers have no word left once normalised.
    """
    found = evaluation.words(answer, language)
    pairs = [_compare(found, evaluation.words(text, language)) for text in gold]
    return Score(max(pair.exact_match for pair in pairs), max(pair.f1 for pair in pairs))


def _compare(found: list[str], expected: list[str]) -> Score:
    common = (Counter(found) & Counter(expected)).total()
    # 2 PR / (P + R) with P = common / found and R = common / expected.
    f1 = 2 * common / (len(found) + len(expected)) if common else 0.0
    return Score(float(found == expected), f1)


def mean(scores: Sequence[Score]) -> Score:
    """Return the means over questions."""
    count = len(scores)
    return Score(sum(each.exact_match for each in scores) / count, sum(each.f1 for each in scores) / count)
