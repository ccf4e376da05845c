"""Rows that start with the meaning of the source pieces they correspond to: `Initialisation.ALIGNED`.

A row is the weighted mean of rows of the source: of pieces that parallel text says it translates to, else of its
nearest neighbours in a common space of static vectors, else of those that stand for its text. A piece of which none is
known gets a `fitted` row. Masked tokens hardly see what is won, zero-shot tasks do:
docs/decisions/0020-aligned-initialisation.md.

Legend: S source vocabulary, T target vocabulary, D width, K neighbours.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from lingraft.console import say
from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation.alignment_quality import AlignmentQuality, AlignmentResource
from lingraft.model.initialisation.decomposition import CuttingPieces
from lingraft.model.initialisation.initial_rows import InitialRows, shared_pieces
from lingraft.model.initialisation.mixed_rows import RowMixer, fill_empty, filled
from lingraft.model.initialisation.piece_classes import Pieces
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
_TRANSLATIONS_ALONE = "pairs"
"""The start of rows that no vectors are compared for."""
_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class AlignedRows:
    """Rows, and the quality of the alignment that they come from."""

    rows: InitialRows
    quality: AlignmentQuality


def align_rows(
    source: Vocabulary,
    source_pieces: CuttingPieces,
    target_pieces: Pieces,
    source_vectors: StaticVectors,
    target_vectors: StaticVectors,
    seed: int,
    loss: Callable[[InitialRows], float],
    resource: AlignmentResource = AlignmentResource.TEXT,
    table: TranslationTable | None = None,
) -> AlignedRows:
    """Compute a language's rows from static vectors of both languages, and from translations where there are any.

    The same inputs and seed give the same rows. Where the alignment fails, rows are those of the source's pieces for
    the same text, except for pieces that sentence pairs translate. Where rows from translations fail, the alignment
    starts from text alone.

    Args:
        source: the primary's table (S, D) and output bias (S).
        source_pieces: the primary's tokenizer.
        target_pieces: the language's.
        source_vectors: static vectors of the source's pieces.
        target_vectors: of the language's pieces.
        seed: decides what is drawn.
        loss: masked loss in nats of the source's body with some rows, on text of the language that vectors were not
            computed from.
        resource: what `table` was learned from.
        table: translations of target pieces; absent with text alone.
    """
    mixer = RowMixer.of(source, source_pieces, target_pieces, seed, rescales=False)
    fitted_loss = loss(mixer.fitted)

    def loss_added(rows: InitialRows) -> float:
        """Nats that rows add to the masked loss of fitted ones."""
        return loss(rows) - fitted_loss

    rows, mapped = mixer.mix(mixer.nothing), 0
    translations_TS, of_translations = mixer.nothing, 0.0
    translated = table is not None and resource is not AlignmentResource.DICTIONARY
    if table and translated:
        means = mixer.mix(table.probabilities_TS)
        of_translations = loss_added(means)
        if of_translations <= MOST_ADDED_LOSS:
            rows, translations_TS = means, table.probabilities_TS
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
        neighbours_TS = _neighbours(alignment)
        near = mixer.mix(fill_empty(translations_TS, neighbours_TS))
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
            rows, mapped = near, int((filled(neighbours_TS) & ~filled(translations_TS)).sum())
    quality = AlignmentQuality(
        resource=resource,
        start=start,
        known_pairs=alignment.known_pairs,
        agreement=round(alignment.agreement, 4),
        similarity=round(alignment.similarity, 4),
        chance_similarity=round(alignment.chance_similarity, 4),
        succeeded=succeeded,
        translated=int(filled(translations_TS).sum()),
        mapped=mapped,
        copied_of_shared=rows.copied - len(mixer.special),
        shared=len(mixer.shared),
        added_loss=round(of_neighbours, 4) if alignment.succeeded else None,
        translations_added_loss=round(of_translations, 4) if translated else None,
    )
    return AlignedRows(rows, quality)


def translate_rows(mixer: RowMixer, resource: AlignmentResource, table: TranslationTable | None) -> AlignedRows:
    """Compute a language's rows from translations alone; others are those of the source's pieces for the same text.

    Args:
        mixer: the source's rows, and the language's pieces.
        resource: what `table` was learned from.
        table: translations of target pieces; None if there are none.
    """
    weights_TS = table.probabilities_TS if table else mixer.nothing
    rows = mixer.mix(weights_TS)
    quality = AlignmentQuality(
        resource=resource,
        start=_TRANSLATIONS_ALONE,
        known_pairs=table.pairs if table else 0,
        succeeded=table is not None,
        translated=int(filled(weights_TS).sum()),
        mapped=0,
        copied_of_shared=rows.copied - len(mixer.special),
        shared=len(mixer.shared),
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
    filled_T = np.flatnonzero(filled(probabilities_TS))
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
