"""Order in which depths are tried: first those that were best for the languages nearest to this one.

Results of other languages decide the order and nothing else. They are no evidence for this language: no trial is
skipped or pruned because of another language's trials. A good first trial sets a high bar for the others early.

The paper's table 1 has each language's word order, and its syntactic and phylogenetic distance from English (lang2vec,
Littell et al. 2017), but no distances between two other languages. So the distance here compares how two languages
differ from English. Two languages with similar distances from English need not be similar; [search.distances] of a
recipe can give better numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lingraft.config.recipe import Recipe
from lingraft.reports.paper.published import DISTANCES

_UNKNOWN = float("inf")


@dataclass(frozen=True)
class TrialOrder:
    """Depths in the order in which they are tried."""

    depths: tuple[int, ...]
    reason: str
    """Reason for the order, as a sentence."""


def order_depths(recipe: Recipe, known: Mapping[str, int]) -> TrialOrder:
    """Order the depths of a recipe.

    Args:
        recipe: recipe with a [search] section, whose distances take precedence over the paper's table.
        known: best depths of other languages; those that this search does not try are left out.
    """
    search = recipe.require_search()
    depths = recipe.searched_depths
    far = {
        language: search.distances.get(language, distance(search.language, language))
        for language, depth in known.items()
        if language != search.language and depth in depths
    }
    near = sorted(far, key=lambda language: (_UNKNOWN if far[language] is None else far[language], language))
    own = [recipe.adaptation.depth] if recipe.adaptation.depth in depths else []
    first = dict.fromkeys([*(known[language] for language in near), *own, *depths])
    if not near:
        return TrialOrder(tuple(first), "the recipe's own depth first, then from shallow to deep")
    distances = ", ".join(f"{known[language]} of {language} ({_describe_distance(far[language])})" for language in near)
    return TrialOrder(
        tuple(first), f"first the best depths of other languages, the nearest first: {distances}; then the rest"
    )


def _describe_distance(far: float | None) -> str:
    return "distance not known" if far is None else f"distance {far:.2f}"


def distance(one: str, other: str) -> float | None:
    """Return the distance between two languages by their BCP 47 tags, 0 to 1; None if the table lacks one of them.

    It is the mean of the differences of the sets of word orders and of the two distances from English.
    """
    first, second = (DISTANCES.get(tag.partition("-")[0]) for tag in (one, other))
    if first is None or second is None:
        return None
    ours = set(first.word_order.split("/"))
    theirs = set(second.word_order.split("/"))
    word_orders = 1 - len(ours & theirs) / len(ours | theirs)
    syntactic = abs(first.syntactic - second.syntactic)
    return (word_orders + (syntactic + abs(first.phylogenetic - second.phylogenetic))) / 3
