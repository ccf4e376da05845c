"""A map between the static vectors of two languages, learned from a few pairs of pieces and improved by itself.

An orthogonal map is fitted to known pairs, gives new pairs, and is fitted again to both (Artetxe, Labaka and Agirre
2018): new pairs are chosen in both directions by CSLS (Conneau et al. 2018), most of them are hidden at random in the
beginning, and at the end both spaces are re-weighted by how well their dimensions agree.

A map that is learned this way always looks good to itself. So it is learned twice, from halves of the known pairs
that have none in common: only where the text holds enough to go by do both come to the same map.

Legend: V vocabulary, W width of the vectors, C frequent pieces, P pairs.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.data.rng import make_generator, single_threaded
from lingraft.model.initialisation.static_vectors import StaticVectors

AGREEMENT = 0.2
"""Mean cosine of what two independent maps say of one piece, below which an alignment has failed."""
_FREQUENT, _REFINED = 2_000, 4_000
"""Pieces among which pairs are looked for at first, and at the end."""
_NEIGHBOURS = 10
"""Neighbours of a piece in CSLS (Conneau et al. 2018, section 2.3)."""
_FIRST_SHARE, _GROWTH = 0.1, 2.0
"""Share of pairs that is visible at first, and what it grows by (Artetxe et al. 2018, section 3.3)."""
_PATIENCE, _PROGRESS = 5, 1e-3
"""Rounds without progress in mean similarity after which more pairs become visible."""
_MOST_REFINEMENTS = 10
_FEWEST = 2
"""Known pairs, and pieces with a vector in either language, without which there are no halves or nothing to map."""
_JUDGED = 100
"""Frequent target pieces without a known pair over which agreement is measured; over all, where there are fewer."""


class PiecePairs(NamedTuple):
    """Pieces of two vocabularies that correspond."""

    source_P: Tensor
    target_P: Tensor

    @classmethod
    def from_ids(cls, by_target: dict[int, int]) -> Self:
        """Pairs of a source id by target id."""
        return cls(torch.tensor([*by_target.values()], dtype=torch.long), torch.tensor([*by_target], dtype=torch.long))

    def select(self, which: Tensor) -> Self:
        """Some of the pairs, by index or mask."""
        return type(self)(self.source_P[which], self.target_P[which])


@dataclass(frozen=True)
class AlignedVectors:
    """Static vectors of two languages in one space, and how far they can be trusted."""

    source_VW: Tensor
    """Vectors of length 1; zeros where a piece has none."""
    target_VW: Tensor
    agreement: float
    """Mean cosine of what two maps say of a piece that were learned from different halves of the known pairs."""
    similarity: float
    """Mean cosine of pieces that are each other's nearest by CSLS."""
    chance_similarity: float
    """Similarity under a random map, with which `similarity` has to be compared."""
    known_pairs: int
    """Pairs that it was learned from."""

    @property
    def succeeded(self) -> bool:
        """Whether neighbours across languages may be taken for translations."""
        return self.agreement >= AGREEMENT


def align(source: StaticVectors, target: StaticVectors, known: PiecePairs, seed: int) -> AlignedVectors:
    """Map both languages' vectors into one space; the same bits for any number of threads.

    Args:
        source: static vectors of the source language.
        target: of the target language, as wide.
        known: pairs of pieces to begin with; those without a vector are left out.
        seed: decides halves and hidden pairs.

    Fewer than two known pairs, or two pieces with a vector, give an alignment that has failed.
    """
    known = known.select(source.known[known.source_P] & target.known[known.target_P])
    count = len(known.source_P)
    with single_threaded():
        spaces = _Spaces(*(normalise_vectors(each.vectors_VW, each.known) for each in (source, target)))
        if min(count, int(source.known.sum()), int(target.known.sum())) < _FEWEST:
            return AlignedVectors(*spaces, agreement=0.0, similarity=0.0, chance_similarity=0.0, known_pairs=count)
        frequent = _Spaces(most_frequent_ids(source, _FREQUENT), most_frequent_ids(target, _FREQUENT))
        with ThreadPoolExecutor(2) as threads:
            first_WW, second_WW = threads.map(
                lambda number, half: _self_learn(
                    spaces, frequent, known.select(half), make_generator("alignment", seed, number)
                ),
                range(2),
                _halves(count, seed),
            )
        refined = _Spaces(most_frequent_ids(source, _REFINED), most_frequent_ids(target, _REFINED))
        pairs = _refine(spaces, refined, known, _orthogonal(first_WW + second_WW))
        others_C = frequent.target[~torch.isin(frequent.target, known.target_P)]
        others_C = others_C if len(others_C) >= _JUDGED else frequent.target
        said = [spaces.target[others_C] @ map_WW.T for map_WW in (first_WW, second_WW)]
        mapped = _reweight(spaces, pairs)
        random_WW = _orthogonal(torch.empty_like(first_WW).normal_(generator=make_generator("random map", seed)))
        chance = _Spaces(spaces.source @ random_WW, spaces.target)
        return AlignedVectors(
            source_VW=mapped.source,
            target_VW=mapped.target,
            agreement=F.cosine_similarity(said[0], said[1]).mean().item(),
            similarity=_mutual_similarity(mapped, refined),
            chance_similarity=_mutual_similarity(chance, refined),
            known_pairs=count,
        )


class _Spaces(NamedTuple):
    """One tensor of each language."""

    source: Tensor
    target: Tensor


def normalise_vectors(vectors_VW: Tensor, known: Tensor) -> Tensor:
    """Scale known vectors to unit length, centre them, and scale them again (Artetxe et al. 2018, section 3.1)."""
    normalised_VW = torch.zeros_like(vectors_VW)
    unit = F.normalize(vectors_VW[known])
    normalised_VW[known] = F.normalize(unit - unit.mean(0))
    return normalised_VW


def most_frequent_ids(vectors: StaticVectors, most: int) -> Tensor:
    """Return the ids (C) of the most frequent pieces that have a vector."""
    order = torch.argsort(vectors.counts_V, descending=True, stable=True)
    return order[vectors.known[order]][:most]


def _halves(count: int, seed: int) -> Sequence[Tensor]:
    order = torch.randperm(count, generator=make_generator("halves", seed))
    return order[::2], order[1::2]


def _self_learn(spaces: _Spaces, frequent: _Spaces, known: PiecePairs, generator: torch.Generator) -> Tensor:
    """Map (W, W) by self-learning, with ever more of the possible pairs visible."""
    map_WW = _fit_map(spaces, known)
    visible, best, since = _FIRST_SHARE, -1.0, 0
    while True:
        forward_C, backward_C, similarity = _nearest(spaces, frequent, map_WW, visible, generator)
        best, since = (similarity, 0) if similarity > best + _PROGRESS else (best, since + 1)
        map_WW = _fit_map(spaces, known, _both_ways(frequent, forward_C, backward_C))
        if since > _PATIENCE:
            if visible >= 1:
                return map_WW
            visible, best, since = min(1.0, _GROWTH * visible), -1.0, 0


def _refine(spaces: _Spaces, frequent: _Spaces, known: PiecePairs, map_WW: Tensor) -> PiecePairs:
    """Known pairs, and those of pieces that are each other's nearest when the map improves no more."""
    best, found = -1.0, known
    for _ in range(_MOST_REFINEMENTS):
        forward_C, backward_C, similarity = _nearest(spaces, frequent, map_WW)
        mutual_C = backward_C[forward_C] == torch.arange(len(forward_C))
        if similarity <= best + _PROGRESS or not mutual_C.any():
            break
        best, found = similarity, PiecePairs(frequent.source[mutual_C], frequent.target[forward_C[mutual_C]])
        map_WW = _fit_map(spaces, known, found)
    return PiecePairs(torch.cat([known.source_P, found.source_P]), torch.cat([known.target_P, found.target_P]))


def _fit_map(spaces: _Spaces, *groups: PiecePairs) -> Tensor:
    """Orthogonal map (W, W) of source vectors nearest to their pairs' (Schönemann 1966); groups weigh the same."""
    products = (spaces.source[each.source_P].T @ spaces.target[each.target_P] / len(each.source_P) for each in groups)
    return _orthogonal(torch.stack([*products]).sum(0))


def _orthogonal(matrix_WW: Tensor) -> Tensor:
    left_WW, _, right_WW = torch.linalg.svd(matrix_WW)
    return left_WW @ right_WW


def _nearest(
    spaces: _Spaces,
    frequent: _Spaces,
    map_WW: Tensor,
    visible: float = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor, float]:
    """Places of the nearest target of each frequent source piece, and the other way; and their mean similarity."""
    similarity_CC = (spaces.source[frequent.source] @ map_WW) @ spaces.target[frequent.target].T
    scores_CC = _csls(similarity_CC)
    if visible < 1:
        scores_CC.masked_fill_(torch.rand(scores_CC.shape, generator=generator) >= visible, -torch.inf)
    forward_C, backward_C = scores_CC.argmax(1), scores_CC.argmax(0)
    there_C, back_C = similarity_CC.gather(1, forward_C[:, None]), similarity_CC.gather(0, backward_C[None])
    return forward_C, backward_C, (there_C.mean() + back_C.mean()).item() / 2


def _csls(similarity_CC: Tensor) -> Tensor:
    """Similarity less how near everything is to either piece, so that no piece is everybody's neighbour."""
    neighbours = min(_NEIGHBOURS, *similarity_CC.shape)
    around_source_C1 = similarity_CC.topk(neighbours, dim=1).values.mean(1, keepdim=True)
    around_target_1C = similarity_CC.topk(neighbours, dim=0).values.mean(0, keepdim=True)
    return (2 * similarity_CC).sub_(around_source_C1).sub_(around_target_1C)


def _both_ways(frequent: _Spaces, forward_C: Tensor, backward_C: Tensor) -> PiecePairs:
    sources = torch.cat([frequent.source, frequent.source[backward_C]])
    return PiecePairs(sources, torch.cat([frequent.target[forward_C], frequent.target]))


def _reweight(spaces: _Spaces, pairs: PiecePairs) -> _Spaces:
    """Whitened, mapped, re-weighted and de-whitened (Artetxe et al. 2018, section 3.4), of unit length."""
    sources_PW, targets_PW = spaces.source[pairs.source_P], spaces.target[pairs.target_P]
    from_source_WW, from_target_WW = _whitening(sources_PW), _whitening(targets_PW)
    left_WW, values_W, right_WW = torch.linalg.svd((sources_PW @ from_source_WW).T @ (targets_PW @ from_target_WW))
    agreed_W = values_W.sqrt()
    source_WW = from_source_WW @ left_WW * agreed_W @ left_WW.T @ from_source_WW.inverse() @ left_WW
    target_WW = from_target_WW @ right_WW.T * agreed_W @ right_WW @ from_target_WW.inverse() @ right_WW.T
    return _Spaces(F.normalize(spaces.source @ source_WW), F.normalize(spaces.target @ target_WW))


def _whitening(vectors_PW: Tensor) -> Tensor:
    missing = max(0, vectors_PW.shape[1] - len(vectors_PW))  # rows of zeros, with which it is invertible
    _, values_W, right_WW = torch.linalg.svd(F.pad(vectors_PW, (0, 0, 0, missing)), full_matrices=False)
    smallest = values_W.max() * 1e-3
    return right_WW.T / values_W.clamp(min=smallest) @ right_WW


def _mutual_similarity(spaces: _Spaces, frequent: _Spaces) -> float:
    similarity_CC = spaces.source[frequent.source] @ spaces.target[frequent.target].T
    csls_CC = _csls(similarity_CC)
    forward_C, backward_C = csls_CC.argmax(1), csls_CC.argmax(0)
    mutual_C = backward_C[forward_C] == torch.arange(len(forward_C))
    there_C = similarity_CC.gather(1, forward_C[:, None])[:, 0]
    return there_C[mutual_C].mean().item() if mutual_C.any() else 0.0
