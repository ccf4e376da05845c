"""Distance between two languages, from the facts of the paper's table 1.

The table has each language's word order, and its syntactic and phylogenetic distance from English (lang2vec, Littell et
al. 2017), but no distances between two other languages. So the distance here compares how two languages differ from
English: it is the mean of three differences, those of the two numbers and of the sets of word orders. Two languages
with similar distances from English need not be similar; [search.distances] of a recipe can give better numbers.
"""

from typing import NamedTuple


class Profile(NamedTuple):
    """A language as seen from English."""

    orders: frozenset[str]
    syntactic: float
    phylogenetic: float


def _profile(orders: str, syntactic: float, phylogenetic: float) -> Profile:
    return Profile(frozenset(orders.split("/")), syntactic, phylogenetic)


PROFILES = {
    "ar": _profile("SVO/VSO", 0.57, 1.00),
    "bg": _profile("SVO", 0.48, 0.86),
    "de": _profile("SVO/SOV", 0.42, 0.43),
    "el": _profile("SVO/VSO", 0.52, 0.83),
    "en": _profile("SVO", 0.0, 0.0),
    "es": _profile("SVO", 0.40, 0.90),
    "fr": _profile("SVO", 0.46, 0.90),
    "hi": _profile("SOV", 0.59, 0.90),
    "ru": _profile("SVO", 0.49, 0.90),
    "sw": _profile("SVO", 0.57, 1.00),
    "th": _profile("SVO", 0.56, 1.00),
    "tr": _profile("SOV", 0.70, 1.00),
    "ur": _profile("SOV", 0.67, 0.90),
    "vi": _profile("SVO", 0.57, 1.00),
    "zh": _profile("SVO", 0.57, 1.00),
}
"""Table 1 of the paper."""


def distance(one: str, other: str) -> float | None:
    """Return the distance between two languages, 0 to 1; None if the table lacks one of them.

    Args:
        one: BCP 47 tag, of which the language alone counts.
        other: the same.
    """
    first, second = (PROFILES.get(tag.partition("-")[0]) for tag in (one, other))
    if first is None or second is None:
        return None
    orders = 1 - len(first.orders & second.orders) / len(first.orders | second.orders)
    numbers = abs(first.syntactic - second.syntactic), abs(first.phylogenetic - second.phylogenetic)
    return (orders + sum(numbers)) / 3
