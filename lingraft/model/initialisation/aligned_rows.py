"""Rows that start with the meaning of the source pieces they correspond to: `Initialisation.ALIGNED`.

A row is the weighted mean of rows of the source: of pieces that parallel text says it translates to, else of its
nearest neighbours in a common space of static vectors. A piece of which neither is known gets a `fitted` row. Masked
tokens hardly see what is won, zero-shot tasks do: docs/decisions/0020-aligned-initialisation.md.

Legend: S source vocabulary, T target vocabulary, D width, K neighbours.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from lingraft.config.initialisation import Initialisation
from lingraft.console import say
from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation.alignment_quality import AlignmentQuality, AlignmentResource
from lingraft.model.initialisation.initial_rows import InitialRows, initialise_rows, shared_pieces
from lingraft.model.initialisation.piece_classes import PieceClass, Pieces, classes_of
from lingraft.model.initialisation.seed_pairs import seed_pairs
from lingraft.model.initialisation.static_vectors import StaticVectors
from lingraft.model.initialisation.translation import TranslationTable
from lingraft.model.initialisation.vector_alignment import CLEAR_AGREEMENT, AlignedVectors, PiecePairs, align

_NEIGHBOURS, _TEMPERATURE = 10, 0.05
"""Source pieces that a row is the mean of, and the softmax over their cosines that weighs them."""
MOST_ADDED_LOSS = 0.4
"""Nats that aligned rows may add to the masked loss of fitted rows; beyond it, they are refused."""
_TRANSLATIONS = "translations and shared pieces"
"""The start of an alignment that a table of translations is given for."""
_ROWS_AT_ONCE = 512
_WORDS = {PieceClass.INITIAL, PieceClass.CONTINUATION}


@dataclass(frozen=True)
class AlignedRows:
    """Rows, and the quality of the alignment that they come from."""

    rows: InitialRows
    quality: AlignmentQuality


def align_rows(
    source: Vocabulary,
    source_pieces: Pieces,
    target_pieces: Pieces,
    source_vectors: StaticVectors,
    target_vectors: StaticVectors,
    seed: int,
    resource: AlignmentResource = AlignmentResource.TEXT,
    table: TranslationTable | None = None,
    loss: Callable[[InitialRows], float] | None = None,
) -> AlignedRows:
    """Compute a language's rows from static vectors of both languages, and from translations where there are any.

    The same inputs and seed give the same rows. Where the alignment fails, rows are those of
    `Initialisation.FITTED`, except for pieces that parallel text translates. Where rows from translations fail, the
    alignment starts from text alone.

    Args:
        source: the primary's table (S, D) and output bias (S).
        source_pieces: the primary's tokenizer.
        target_pieces: the language's.
        source_vectors: static vectors of the source's pieces.
        target_vectors: of the language's pieces.
        seed: decides what is drawn.
        resource: what `table` was learned from.
        table: translations of target pieces; absent with text alone.
        loss: masked loss in nats of the source's body with some rows, on text of the language that vectors were not
            computed from; absent: rows are not judged by it.

    Raises:
        TokenizerError: the source has not one row a piece, or no piece but special ones.
    """
    fitted = initialise_rows(
        source, source_pieces, target_pieces, Initialisation.FITTED, torch.Generator().manual_seed(seed)
    )
    nothing_TS = scipy.sparse.csr_array((len(target_pieces), len(source_pieces)), dtype=np.float32)
    shared, classes = shared_pieces(source_pieces, target_pieces), classes_of(target_pieces)
    special = dict(zip(target_pieces.special, source_pieces.special, strict=True))

    def rows_of(weights_TS: scipy.sparse.csr_array) -> tuple[InitialRows, int]:
        """Rows, and how many of them are copies of shared pieces."""
        copied = _agreeing_pieces(shared, weights_TS, classes)
        return _mix_rows(fitted, source, weights_TS, copied | special, classes), len(copied)

    def loss_added(rows: InitialRows) -> float:
        """Nats that rows add to the masked loss of fitted ones; 0 if they are not judged by it."""
        return loss(rows) - fitted_loss if loss else 0.0

    (rows, copied), mapped = rows_of(nothing_TS), 0
    fitted_loss = loss(rows) if loss else 0.0
    translations_TS, of_translations = nothing_TS, 0.0
    translated = table is not None and resource is AlignmentResource.PARALLEL
    if table and translated:
        means, means_copied = rows_of(table.probabilities_TS)
        of_translations = loss_added(means)
        if of_translations <= MOST_ADDED_LOSS:
            rows, copied, translations_TS = means, means_copied, table.probabilities_TS
        else:
            say(
                f"translations are refused: rows from them add {of_translations:.2f} nats to the masked loss of fitted "
                f"rows, more than {MOST_ADDED_LOSS}. Check that the pairs of {resource} are each other's translations."
            )
            resource, table = AlignmentResource.TEXT, None
    translations = _likeliest(table) if table else {}
    start, alignment = _best_alignment(
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        source=source_vectors,
        target=target_vectors,
        seed=seed,
        translations=translations,
    )
    succeeded = alignment.succeeded
    of_neighbours = 0.0
    if succeeded:
        neighbours_TS, elsewhere_T = _neighbours(alignment), ~_filled(translations_TS)
        elsewhere_TT = scipy.sparse.diags_array(elsewhere_T.astype(np.float32), format="csr")
        near, near_copied = rows_of((translations_TS + elsewhere_TT @ neighbours_TS).tocsr())
        of_neighbours = loss_added(near)
        # Where two halves of a dictionary agree, rows carry meaning that masked loss does not see: decision 20.
        translated_P = PiecePairs.from_ids(translations).with_vectors(source_vectors, target_vectors).target_P
        is_known = (
            resource is AlignmentResource.DICTIONARY
            and start == _TRANSLATIONS
            and 2 * len(translated_P) > alignment.known_pairs
        )
        succeeded = is_known or of_neighbours <= MOST_ADDED_LOSS + min(of_translations, 0.0)
        if succeeded:
            rows, copied, mapped = near, near_copied, int((_filled(neighbours_TS) & elsewhere_T).sum())
    quality = AlignmentQuality(
        resource=resource,
        start=start,
        known_pairs=alignment.known_pairs,
        agreement=round(alignment.agreement, 4),
        similarity=round(alignment.similarity, 4),
        chance_similarity=round(alignment.chance_similarity, 4),
        succeeded=succeeded,
        translated=int(_filled(translations_TS).sum()),
        mapped=mapped,
        copied_of_shared=copied,
        shared=len(shared),
        added_loss=round(of_neighbours, 4) if loss and alignment.succeeded else None,
        translations_added_loss=round(of_translations, 4) if loss and translated else None,
    )
    return AlignedRows(rows, quality)


def _best_alignment(
    source_pieces: Pieces,
    target_pieces: Pieces,
    source: StaticVectors,
    target: StaticVectors,
    seed: int,
    translations: dict[int, int],
) -> tuple[str, AlignedVectors]:
    """The alignment from translations if it succeeds, else the best from text alone.

    Of those that succeed it is the one whose mutual neighbours are most similar, of those that failed the one whose
    halves agree most. Once a start succeeds clearly, no other is tried: each takes some seconds.
    """
    tried: list[tuple[str, AlignedVectors]] = []
    if translations:
        known = shared_pieces(source_pieces, target_pieces) | translations
        tried.append((_TRANSLATIONS, align(source, target, PiecePairs.from_ids(known), seed)))
        if tried[-1][1].succeeded:
            return tried[-1]
    for name, known_pairs in seed_pairs(source_pieces, target_pieces, source, target):
        tried.append((name, align(source, target, known_pairs, seed)))
        if tried[-1][1].agreement >= CLEAR_AGREEMENT:
            break
    for name, found in tried:
        if not found.succeeded:
            say(f"alignment from {name} failed: two halves of them agree to {found.agreement:.2f} only")
    succeeded = [each for each in tried if each[1].succeeded]
    if not succeeded:
        return max(tried, key=lambda each: each[1].agreement)
    return max(succeeded, key=lambda each: each[1].similarity)


def _likeliest(table: TranslationTable) -> dict[int, int]:
    """The likeliest source piece of every target piece that has one."""
    probabilities_TS = table.probabilities_TS
    filled_T = np.flatnonzero(_filled(probabilities_TS))
    best_T = probabilities_TS.argmax(axis=1)
    return dict(zip(filled_T.tolist(), np.asarray(best_T).ravel()[filled_T].tolist(), strict=True))


def _neighbours(alignment: AlignedVectors) -> scipy.sparse.csr_array:
    """Weights (T, S) of the nearest source pieces of every target piece that has a vector."""
    targets, sources = (each.any(1).nonzero()[:, 0] for each in (alignment.target_VW, alignment.source_VW))
    near_SW = alignment.source_VW[sources]
    count = min(_NEIGHBOURS, len(sources))
    rows, columns, weights = [], [], []
    for part in targets.split(_ROWS_AT_ONCE):
        cosines_NK, places_NK = (alignment.target_VW[part] @ near_SW.T).topk(count, dim=1)
        rows.append(part.repeat_interleave(count))
        columns.append(sources[places_NK].flatten())
        weights.append((cosines_NK / _TEMPERATURE).softmax(1).flatten())
    shape = len(alignment.target_VW), len(alignment.source_VW)
    places = torch.cat(rows).numpy(), torch.cat(columns).numpy()
    return scipy.sparse.coo_array((torch.cat(weights).numpy(), places), shape=shape).tocsr()


def _filled(weights_TS: scipy.sparse.csr_array) -> NDArray[np.bool_]:
    return np.diff(weights_TS.indptr) > 0


def _agreeing_pieces(
    shared: dict[int, int], weights_TS: scipy.sparse.csr_array, classes: list[PieceClass]
) -> dict[int, int]:
    """Shared pieces that mean the same in both languages, as far as is known.

    Words may be false friends, such as German "die": a row is copied where its piece is among the neighbours, or
    nothing is known. Digits and punctuation mean the same everywhere.
    """

    def agrees(target: int, source: int) -> bool:
        near = weights_TS.indices[weights_TS.indptr[target] : weights_TS.indptr[target + 1]]
        return classes[target] not in _WORDS or not len(near) or source in near

    return {target: source for target, source in shared.items() if agrees(target, source)}


def _mix_rows(
    fitted: InitialRows,
    source: Vocabulary,
    weights_TS: scipy.sparse.csr_array,
    exact: dict[int, int],
    classes: list[PieceClass],
) -> InitialRows:
    """Fitted rows, with means in their place where there are weights, and copies where they are exact."""
    source_SD, source_S = (tensor.detach().cpu().float() for tensor in (source.table_VD, source.bias_V))
    table_TD, bias_T = fitted.table_VD.clone(), fitted.bias_V.clone()
    mean_T = torch.from_numpy(_filled(weights_TS))
    table_TD[mean_T] = torch.from_numpy(weights_TS @ source_SD.numpy())[mean_T]
    bias_T[mean_T] = torch.from_numpy(weights_TS @ source_S.numpy())[mean_T]
    targets, sources = torch.tensor([*exact]), torch.tensor([*exact.values()])
    table_TD[targets], bias_T[targets] = source_SD[sources], source_S[sources]
    return replace(
        fitted,
        table_VD=table_TD,
        bias_V=bias_T,
        copied=len(exact),
        copied_by_class=Counter(classes[index] for index in exact),
    )
