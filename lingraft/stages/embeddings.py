"""Start and manifest of a language's embeddings, initial or learned.

`initialise` writes initial ones, `adapt` learns from them, and `evaluate` compares the two.

Legend: V vocabulary, D width.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.artifacts.manifest import Kind, artifact_fingerprint
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Step
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import AlignmentError, ArtifactError, RecipeError, TokenizerError
from lingraft.model.initialisation.alignment_quality import AlignmentQuality
from lingraft.model.initialisation.initial_rows import InitialRows, initialise_rows
from lingraft.model.initialisation.piece_classes import PieceClass
from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings

INITIALISATION = "initialisation"
"""Detail of a manifest that only initial embeddings have."""
ALIGNMENT = "alignment"
"""Detail of initial embeddings that were computed from text."""
PAIRS = "pairs.tsv"
"""File of initial embeddings with the sentence pairs that were mined for them, source<TAB>target a line."""
_INITIAL = "initial"
"""Name under which manifests keep the fingerprint of the initial embeddings that something was made from."""


def initial_rows(recipe: Recipe, primary: LoadedPrimary, pieces: Tokenizer, initial: Path | None = None) -> InitialRows:
    """Return the rows that a language's embeddings start from: those of an artifact, else drawn by the recipe's seed.

    Drawn or read from what `initialise` wrote for the same recipe, they are the same bit for bit.

    Args:
        recipe: recipe, whose [adaptation] names the initialisation and the seed.
        primary: primary whose rows are copied or imitated.
        pieces: tokenizer of the language.
        initial: embeddings that `initialise` wrote.

    Raises:
        AlignmentError: `initial` was made from another primary.
        TokenizerError: `initial` was made with another tokenizer, the primary has no pieces but special ones, or pieces
            are borrowed from another tokenizer than the primary's.
        RecipeError: `initial` is of another kind than the recipe's, or it is missing and the rows cannot be drawn.
        ArtifactError: `initial` is damaged, or was not written by `initialise`.
    """
    how = recipe.adaptation.initialisation
    if initial:
        return _loaded(initial, how, primary, pieces)
    if how.needs_text:
        raise RecipeError(
            f"adaptation.initialisation is '{how}', whose rows are computed from text by a command of their own. Run "
            f"`lingraft initialise` for {pieces.language!r} first, and give the folder that it wrote (--initial)."
        )
    generator = torch.Generator().manual_seed(recipe.adaptation.seed)
    rows = initialise_rows(primary.source, primary.tokenizer, pieces.own, generator)
    return replace(rows, borrowed=primary.borrowed_rows(pieces))


def embeddings_details(recipe: Recipe, depth: int, step: Step, rows: InitialRows) -> dict[str, Any]:
    """Return the details that manifests of initial and of learned embeddings have."""
    return {
        "depth": depth,
        "fresh_layers": step.fresh_layers,
        "system": recipe.system,
        "overlap": rows.copied,
        "overlap_by_class": rows.counts(),
        "vocabulary": len(rows.table_VD),
        "special_ids": rows.special._asdict(),
        **({"borrowed": len(rows.borrowed.ids_B)} if rows.borrowed else {}),
    }


def quality_of(initial: Path | None) -> AlignmentQuality | None:
    """Return the quality of the alignment that initial embeddings come from; None where rows were not aligned.

    Raises:
        ArtifactError: there is no artifact, or its manifest is damaged.
    """
    manifest = Artifact.load(initial, Kind.EMBEDDINGS).manifest if initial else None
    if manifest is None or ALIGNMENT not in manifest.details:
        return None
    quality: AlignmentQuality = manifest.detail(ALIGNMENT, AlignmentQuality)
    return quality


def mined_pairs_of(initial: Path | None) -> str | None:
    """Return the file of the sentence pairs that initial embeddings were mined from; None if there are none."""
    return str(initial / PAIRS) if initial and (initial / PAIRS).is_file() else None


def mark_of(initial: Path | None) -> dict[str, str]:
    """Return the fingerprint of initial embeddings for a manifest's hashes; empty without them.

    Raises:
        ArtifactError: there is no artifact, or its manifest is damaged.
    """
    return {_INITIAL: artifact_fingerprint(initial)} if initial else {}


def require_start(learned: Embeddings, initial: Path | None) -> None:
    """Refuse initial embeddings that others were not learned from; those that drew their own rows name none.

    Raises:
        AlignmentError: the learned embeddings started from another artifact; the message names both.
        ArtifactError: there is no artifact, or its manifest is damaged.
    """
    started_from = learned.manifest.data_hashes.get(_INITIAL)
    if initial and started_from and started_from != artifact_fingerprint(initial):
        raise AlignmentError(
            f"embeddings of {learned.language!r} were learned from initial embeddings {started_from}, but {initial} "
            f"has {artifact_fingerprint(initial)}. Give those that `lingraft adapt --initial` was given."
        )


def _loaded(initial: Path, how: Initialisation, primary: LoadedPrimary, pieces: Tokenizer) -> InitialRows:
    found = load_embeddings(initial)
    manifest, again = found.manifest, "Run `lingraft initialise` again"
    if INITIALISATION not in manifest.details:
        raise ArtifactError(
            f"{initial} holds embeddings after {manifest.cost.steps:,} updates of an adaptation, not initial ones. "
            "Give the folder that `lingraft initialise` wrote."
        )
    require_aligned(f"initial embeddings of {found.language!r}", found.aligned_with, primary.fingerprint, again)
    if found.tokenizer.hash != pieces.hash:
        raise TokenizerError(
            f"{initial} was made with tokenizer {found.tokenizer.hash} of {found.language!r}, not with {pieces.hash} "
            f"of {pieces.language!r}. {again} with this tokenizer."
        )
    kind: Initialisation = manifest.detail(INITIALISATION, Initialisation)
    if kind is not how:
        raise RecipeError(
            f"{initial} was initialised by '{kind}', but the recipe's adaptation.initialisation is '{how}'. {again} "
            "with this recipe, or correct the recipe."
        )
    counts: dict[PieceClass, dict[str, int]] = manifest.detail("overlap_by_class", dict[PieceClass, dict[str, int]])
    return InitialRows(
        table_VD=found.vocabulary.table_VD.detach(),
        bias_V=found.vocabulary.bias_V.detach(),
        copied=manifest.detail("overlap", int),
        copied_by_class=Counter({each: count["copied"] for each, count in counts.items() if count["copied"]}),
        pieces_by_class=Counter({each: count["pieces"] for each, count in counts.items()}),
        special=pieces.special,
        borrowed=primary.borrowed_rows(pieces),
    )
