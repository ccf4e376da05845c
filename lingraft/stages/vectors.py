"""Static vectors of a language's pieces as an artifact: the source's are computed once, and read for every language.

Legend: V vocabulary, W width of the vectors, D width of a table.
"""

import time
from pathlib import Path

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import require_new
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TokenizerError
from lingraft.model.initialisation.static_vectors import WINDOW, StaticVectors, static_vectors

WIDTH = 96
"""Width of every language's vectors, since an alignment maps one space onto another of the same width."""
_SEED = 1
"""Seed of the factorisation's random start, one for all languages, so that vectors depend on blocks alone."""
_PART = "vectors"


def build_vectors(recipe: Recipe, blocks: Path, tokenizer: Path, out: Path) -> Artifact:
    """Compute static vectors of a language's pieces from the training split of its blocks, and write them.

    Raises:
        TokenizerError: the blocks were made with another tokenizer.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    started = time.monotonic()
    pieces = Tokenizer.load(tokenizer)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    found = vectors_of(open_split(data, "train", sequential=True), pieces)
    with artifact.create(out, Kind.VECTORS) as draft:
        draft.tensors(_PART, {"vectors_VW": found.vectors_VW, "counts_V": found.counts_V})
        draft.facts = {
            "language": pieces.language,
            "tokenizer_hash": pieces.hash,
            "data_hashes": input_hashes(data),
            "record": {"elapsed_s": time.monotonic() - started},
            "details": {"width": WIDTH, "window": WINDOW, "seed": _SEED, "vocabulary": len(pieces)}
            | {"known": int(found.known.sum())},
        }
    return Artifact.load(out, Kind.VECTORS)


def vectors_of(blocks: Blocks, pieces: Tokenizer) -> StaticVectors:
    """Compute static vectors as every language has them: of the same width, by the same seed."""
    return static_vectors(blocks, len(pieces), pieces.special, WIDTH, _SEED)


def load_vectors(folder: Path, pieces: Tokenizer) -> StaticVectors:
    """Open static vectors of a tokenizer's pieces.

    Raises:
        TokenizerError: they were computed with another tokenizer.
        ArtifactError: not vectors, or damaged.
    """
    found = Artifact.load(folder, Kind.VECTORS)
    if found.manifest.tokenizer_hash != pieces.hash:
        raise TokenizerError(
            f"{folder} was computed with tokenizer {found.manifest.tokenizer_hash}, not with {pieces.hash} of "
            f"{pieces.language!r}. Compute them again (`lingraft vectors`) from blocks made with this tokenizer."
        )
    tensors = found.tensors(_PART)
    return StaticVectors(vectors_VW=tensors["vectors_VW"], counts_V=tensors["counts_V"])
