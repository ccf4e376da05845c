"""Pairs of pieces that an alignment can start from when nothing but two vocabularies and their text is given.

Legend: V vocabulary, W width of the vectors, C frequent pieces.
"""

import difflib
import unicodedata
from collections import defaultdict
from collections.abc import Iterator

from anyascii import anyascii
from torch import Tensor
from torch.nn import functional as F

from lingraft.model.initialisation.initial_rows import shared_pieces
from lingraft.model.initialisation.piece_classes import Pieces
from lingraft.model.initialisation.static_vectors import StaticVectors
from lingraft.model.initialisation.vector_alignment import PiecePairs, most_frequent_ids, normalise_vectors

_COMPARED = 5_000
"""Frequent pieces whose spelling is compared; rarer ones are mostly parts of words."""
_SHORTEST_COGNATE, _ALIKE = 5, 0.75
"""Letters of a cognate, and the ratio of matching letters (difflib) from which two words count as one."""
_SAME_BEGINNING = 2
_PROFILED = 2_000


def seed_pairs(
    source_pieces: Pieces, target_pieces: Pieces, source: StaticVectors, target: StaticVectors
) -> Iterator[tuple[str, PiecePairs]]:
    """Pairs to start from, with a name for them, the most reliable first; each is made when it is asked for.

    Shared pieces are identical strings: names, numbers, punctuation, loan words. Cognates are words of similar spelling
    once both are in Latin letters. Profiles compare how a piece's similarities to all others of its language are
    distributed, which needs no common writing at all (Artetxe, Labaka and Agirre 2018, section 3.2).
    """
    shared = shared_pieces(source_pieces, target_pieces)
    yield "shared pieces", PiecePairs.from_ids(shared)
    cognates = _cognates(
        source_pieces, target_pieces, most_frequent_ids(source, _COMPARED), most_frequent_ids(target, _COMPARED)
    )
    yield "shared pieces and cognates", PiecePairs.from_ids(cognates | shared)
    yield "similarity profiles", _profile_pairs(source, target)


def _cognates(source_pieces: Pieces, target_pieces: Pieces, sources_C: Tensor, targets_C: Tensor) -> dict[int, int]:
    """Source id by target id, of words that are spelt alike in Latin letters."""
    by_beginning: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for index, spelling in _spellings(source_pieces, sources_C):
        by_beginning[spelling[:_SAME_BEGINNING]].append((spelling, index))
    found = {}
    for index, spelling in _spellings(target_pieces, targets_C):
        matcher = difflib.SequenceMatcher(b=spelling, autojunk=False)
        best, ratio = None, _ALIKE
        for candidate, source_index in by_beginning[spelling[:_SAME_BEGINNING]]:
            matcher.set_seq1(candidate)
            if matcher.real_quick_ratio() > ratio and matcher.ratio() > ratio:
                best, ratio = source_index, matcher.ratio()
        if best is not None:
            found[index] = best
    return found


def _spellings(pieces: Pieces, ids_C: Tensor) -> Iterator[tuple[int, str]]:
    """Ids of pieces that begin words, with their text in small Latin letters."""
    surfaces = pieces.surfaces()
    for index in ids_C.tolist():
        surface = surfaces[index]
        if surface and surface.initial is not False and surface.text.isalpha():
            spelling = anyascii(unicodedata.normalize("NFKC", surface.text)).lower()
            if len(spelling) >= _SHORTEST_COGNATE:
                yield index, spelling


def _profile_pairs(source: StaticVectors, target: StaticVectors) -> PiecePairs:
    count = min(_PROFILED, int(source.known.sum()), int(target.known.sum()))
    if not count:
        return PiecePairs.from_ids({})
    sources_C, targets_C = most_frequent_ids(source, count), most_frequent_ids(target, count)
    profiles = [
        _profiles(normalise_vectors(each.vectors_VW, each.known)[ids_C])
        for each, ids_C in ((source, sources_C), (target, targets_C))
    ]
    nearest_C = (profiles[1] @ profiles[0].T).argmax(1)
    return PiecePairs(sources_C[nearest_C], targets_C)


def _profiles(vectors_CW: Tensor) -> Tensor:
    """Sorted square roots of each piece's similarities to the others (C, C), centred and of unit length."""
    similarity_CC = (vectors_CW @ vectors_CW.T).clamp(min=0).sqrt().sort(dim=1).values
    return F.normalize(similarity_CC - similarity_CC.mean(0))
