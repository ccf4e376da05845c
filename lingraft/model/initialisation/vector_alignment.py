"""A map between the static vectors of two languages, learned from a few pairs of pieces and improved by itself.

An orthogonal map is fitted to known pairs, gives new pairs, and is fitted again to both (Artetxe, Labaka and Agirre
2018): new pairs are chosen in both directions by CSLS (Conneau et al. 2018), most of them are hidden at random in the
beginning, and at the end both spaces are re-weighted by how well their dimensions agree.

A map that is learned this way always looks good to itself. So it is learned twice, from halves of the known pairs
that have none in common: only where the text holds enough to go by do both come to the same map.

Legend: V vocabulary, W width of the vectors, C frequent pieces, P pairs.
"""

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
CLEAR_AGREEMENT = 0.5
"""Agreement from which nothing slower is tried: hidden pairs, and other pairs to start from."""
_MOST_FREQUENT, _FREQUENT = 1_000, 2_000
"""Pieces among which pairs are looked for where all are visible at first, and where they are not and at the end."""
_NEIGHBOURS = 10
"""Neighbours of a piece in CSLS (Conneau et al. 2018, section 2.3)."""
_FIRST_SHARE, _GROWTH = 0.1, 2.0
"""Share of pairs that is visible at first, and what it grows by (Artetxe et al. 2018, section 3.3)."""
_PATIENCE, _SHORT_PATIENCE, _PROGRESS = 5, 1, 1e-3
"""Rounds without progress in mean similarity after which more pairs become visible, or learning ends; without hidden
pairs, fewer are enough."""
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

    def with_vectors(self, source: StaticVectors, target: StaticVectors) -> Self:
        """Leave the pairs of which both pieces have a vector."""
        return self.select(source.known[self.source_P] & target.known[self.target_P])


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
    known = known.with_vectors(source, target)
    count = len(known.source_P)
    with single_threaded():
        spaces = _Spaces(*(normalise_vectors(each.vectors_VW, each.known) for each in (source, target)))
        if min(count, int(source.known.sum()), int(target.known.sum())) < _FEWEST:
            return AlignedVectors(*spaces, agreement=0.0, similarity=0.0, chance_similarity=0.0, known_pairs=count)
        most_frequent, frequent = (
            _Spaces(most_frequent_ids(source, most), most_frequent_ids(target, most))
            for most in (_MOST_FREQUENT, _FREQUENT)
        )
        learned = _learn_twice(spaces, most_frequent, known, visible=1.0, seed=seed)
        if learned.agreement < CLEAR_AGREEMENT:
            learned = _learn_twice(spaces, frequent, known, visible=_FIRST_SHARE, seed=seed)
        pairs = _refine(spaces, frequent, known, _orthogonal(learned.first_WW + learned.second_WW))
        mapped = _reweight(spaces, pairs)
        random_WW = _orthogonal(
            torch.empty_like(learned.first_WW).normal_(generator=make_generator("random map", seed))
        )
        chance = _Spaces(spaces.source @ random_WW, spaces.target)
        return AlignedVectors(
            source_VW=mapped.source,
            target_VW=mapped.target,
            agreement=learned.agreement,
            similarity=_NeighbourSearch(mapped, frequent).nearest().mutual_similarity,
            chance_similarity=_NeighbourSearch(chance, frequent).nearest().mutual_similarity,
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


class _TwoMaps(NamedTuple):
    """Maps (W, W) that were learned from different halves of the known pairs, and how far they agree."""

    first_WW: Tensor
    second_WW: Tensor
    agreement: float


def _learn_twice(spaces: _Spaces, frequent: _Spaces, known: PiecePairs, visible: float, seed: int) -> _TwoMaps:
    """Learn a map from either half of the known pairs, with a share of all pairs visible at first."""
    order = torch.randperm(len(known.source_P), generator=make_generator("halves", seed))

    def learn(number: int) -> Tensor:
        half, generator = known.select(order[number::2]), make_generator("alignment", seed, number)
        return _self_learn(spaces, frequent, half, visible, generator)

    with ThreadPoolExecutor(2) as threads:
        first_WW, second_WW = threads.map(learn, range(2))
    others_C = frequent.target[~torch.isin(frequent.target, known.target_P)]
    others_C = others_C if len(others_C) >= _JUDGED else frequent.target
    said = [spaces.target[others_C] @ map_WW.T for map_WW in (first_WW, second_WW)]
    return _TwoMaps(first_WW, second_WW, agreement=F.cosine_similarity(said[0], said[1]).mean().item())


def _self_learn(
    spaces: _Spaces, frequent: _Spaces, known: PiecePairs, visible: float, generator: torch.Generator
) -> Tensor:
    """Map (W, W) by self-learning, with ever more of the possible pairs visible until all are."""
    map_WW, search = _fit_map(spaces, known), _NeighbourSearch(spaces, frequent)
    patience = _PATIENCE if visible < 1 else _SHORT_PATIENCE
    best, since = -1.0, 0
    while True:
        found = search.nearest(map_WW, visible, generator)
        best, since = (found.similarity, 0) if found.similarity > best + _PROGRESS else (best, since + 1)
        map_WW = _fit_map(spaces, known, found.both_ways)
        if since > patience:
            if visible >= 1:
                return map_WW
            visible, best, since = min(1.0, _GROWTH * visible), -1.0, 0


def _refine(spaces: _Spaces, frequent: _Spaces, known: PiecePairs, map_WW: Tensor) -> PiecePairs:
    """Known pairs, and those of pieces that are each other's nearest when the map improves no more."""
    best, mutual, search = -1.0, known, _NeighbourSearch(spaces, frequent)
    for _ in range(_MOST_REFINEMENTS):
        found = search.nearest(map_WW)
        if found.similarity <= best + _PROGRESS or not len(found.mutual.source_P):
            break
        best, mutual = found.similarity, found.mutual
        map_WW = _fit_map(spaces, known, mutual)
    return PiecePairs(torch.cat([known.source_P, mutual.source_P]), torch.cat([known.target_P, mutual.target_P]))


def _fit_map(spaces: _Spaces, *groups: PiecePairs) -> Tensor:
    """Orthogonal map (W, W) of source vectors nearest to their pairs' (Schönemann 1966); groups weigh the same."""
    products = (spaces.source[each.source_P].T @ spaces.target[each.target_P] / len(each.source_P) for each in groups)
    return _orthogonal(torch.stack([*products]).sum(0))


def _orthogonal(matrix_WW: Tensor) -> Tensor:
    """Nearest orthogonal map; zero where fewer pairs than dimensions say nothing, which rounding would else decide."""
    left_WW, values_W, right_WW = torch.linalg.svd(matrix_WW)
    return left_WW * (values_W > values_W[0] * len(values_W) * torch.finfo(values_W.dtype).eps) @ right_WW


class _Nearest(NamedTuple):
    """The nearest piece of the other language for each frequent piece (C), and its cosine."""

    frequent: _Spaces
    forward_C: Tensor
    """Place among the target's frequent pieces, by that among the source's."""
    backward_C: Tensor
    there_C: Tensor
    back_C: Tensor

    @property
    def similarity(self) -> float:
        return (self.there_C.mean() + self.back_C.mean()).item() / 2

    @property
    def both_ways(self) -> PiecePairs:
        source_C, target_C = self.frequent
        return PiecePairs(
            torch.cat([source_C, source_C[self.backward_C]]), torch.cat([target_C[self.forward_C], target_C])
        )

    @property
    def mutual(self) -> PiecePairs:
        """Pieces that are each other's nearest."""
        return self.both_ways.select(self._places_of_mutual())

    @property
    def mutual_similarity(self) -> float:
        """Mean cosine of pieces that are each other's nearest."""
        places_P = self._places_of_mutual()
        return self.there_C[places_P].mean().item() if len(places_P) else 0.0

    def _places_of_mutual(self) -> Tensor:
        return (self.backward_C[self.forward_C] == torch.arange(len(self.forward_C))).nonzero()[:, 0]


class _NeighbourSearch:
    """Search for each other's nearest among frequent pieces by CSLS, in memory that is allocated once.

    Both directions have a matrix of their own: rows are read far faster than columns.
    """

    def __init__(self, spaces: _Spaces, frequent: _Spaces) -> None:
        self._frequent = frequent
        self._source_CW, self._target_CW = spaces.source[frequent.source], spaces.target[frequent.target]
        sizes = len(self._source_CW), len(self._target_CW)
        self._forward_CC, self._backward_CC = torch.empty(sizes), torch.empty(sizes[::-1])

    def nearest(
        self, map_WW: Tensor | None = None, visible: float = 1.0, generator: torch.Generator | None = None
    ) -> _Nearest:
        """Find every piece's nearest, among a random share of pairs that is visible."""
        mapped_CW = self._source_CW if map_WW is None else self._source_CW @ map_WW
        torch.mm(mapped_CW, self._target_CW.T, out=self._forward_CC)
        torch.mm(self._target_CW, mapped_CW.T, out=self._backward_CC)
        around_source_C, around_target_C = _surroundings(self._forward_CC), _surroundings(self._backward_CC)
        forward_C, there_C = _best(self._forward_CC, around_target_C, visible, generator)
        backward_C, back_C = _best(self._backward_CC, around_source_C, visible, generator)
        return _Nearest(self._frequent, forward_C, backward_C, there_C, back_C)


def _surroundings(similarity_CC: Tensor) -> Tensor:
    """Mean cosine of each row's piece to its nearest of the other language."""
    return similarity_CC.topk(min(_NEIGHBOURS, similarity_CC.shape[1]), dim=1).values.mean(1)


def _best(
    similarity_CC: Tensor, around_C: Tensor, visible: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Column of the nearest of each row, and its cosine; the matrix is overwritten.

    Nearest by CSLS is what is most similar, less half of how near everything is to it; how near everything is to the
    row's own piece is the same for the whole row.
    """
    scores_CC = similarity_CC.sub_(around_C / 2)
    if visible < 1:
        scores_CC.masked_fill_(torch.rand(scores_CC.shape, generator=generator) >= visible, -torch.inf)
    best_C = scores_CC.argmax(1)
    return best_C, scores_CC.gather(1, best_C[:, None])[:, 0] + around_C[best_C] / 2


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
