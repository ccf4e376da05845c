"""Primary, mini-model and embeddings as artifacts: saved, loaded, and combined only if they belong together."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import PositiveInt
from torch import nn

from lingraft.artifacts.artifact import Artifact, Draft, require_aligned
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError, RecipeError, TokenizerError
from lingraft.model.encoder import BorrowedRows, Encoder, MlmHead, Vocabulary, build_layers, mini_model
from lingraft.model.swap import make_vocabulary, swap

HEAD_PART = "head"
"""Part of a mini-model that holds its MLM head, where the primary has none."""


@dataclass(frozen=True)
class LoadedPrimary:
    """Body with MLM heads and the source language's vocabulary."""

    encoder: Encoder
    tokenizer: Tokenizer
    fingerprint: str
    manifest: Manifest
    source: Vocabulary
    """The source language's vocabulary, whichever the encoder has at the moment."""

    def swap_in(self, embeddings: "Embeddings") -> Vocabulary:
        """Put a language's embeddings into the body, in place; returns the vocabulary that was there."""
        self.lend_to(embeddings)
        return swap(self.encoder, embeddings.vocabulary)

    def lend_to(self, embeddings: "Embeddings") -> None:
        """Have a language's borrowed pieces refer to the source's rows, as tasks, too, need them to."""
        require_aligned(f"embeddings of {embeddings.language!r}", embeddings.aligned_with, self.fingerprint)
        embeddings.vocabulary.borrowed = self.borrowed_rows(embeddings.tokenizer)

    def borrowed_rows(self, pieces: Tokenizer) -> BorrowedRows | None:
        """Return references to the source's rows for a tokenizer's borrowed pieces; None if it has none."""
        pieces.require_lender(self.tokenizer)
        return BorrowedRows(torch.from_numpy(pieces.borrowed_B), self.source) if len(pieces.borrowed_B) else None


@dataclass(frozen=True)
class Embeddings:
    """A language's vocabulary and tokenizer."""

    vocabulary: Vocabulary
    """Vocabulary of the language's own pieces alone, until a primary lends it the rows of borrowed ones."""
    tokenizer: Tokenizer
    language: str
    aligned_with: str
    fingerprint: str
    manifest: Manifest

    def require_whole(self) -> None:
        """Refuse a vocabulary that lacks the rows of borrowed pieces."""
        if len(self.vocabulary) != len(self.tokenizer):
            raise TokenizerError(
                f"{len(self.tokenizer.borrowed_B)} pieces of {self.language!r} have rows of the primary's, which only "
                "the primary has. Load it, and have it lend them (LoadedPrimary.lend_to)."
            )


def save_vocabulary(draft: Draft, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
    """Put a vocabulary and the tokenizer that it belongs to into an artifact."""
    draft.tensors("vocabulary", vocabulary.state_dict())
    shutil.copyfile(tokenizer.model, draft.folder / tokenizer.model.name)


def load_primary(folder: Path, wanted: EncoderShape | None = None) -> LoadedPrimary:
    """Open a primary, which trains with the dropout of the shape wanted."""
    artifact = Artifact.load(folder, Kind.PRIMARY)
    shape: EncoderShape = artifact.manifest.detail("shape", EncoderShape)
    if wanted:
        require_shape(wanted, shape, f"the primary in {folder}")
        shape = shape.model_copy(update={"dropout": wanted.dropout})
    vocabulary, tokenizer = _load_vocabulary(artifact)
    encoder = Encoder(shape, 0)
    encoder.vocabulary = vocabulary
    load_tensors(encoder, artifact, "body", elsewhere=("vocabulary.",))
    return LoadedPrimary(encoder, tokenizer, artifact.fingerprint, artifact.manifest, vocabulary)


def require_shape(wanted: EncoderShape, shape: EncoderShape, primary: str) -> None:
    """Refuse a recipe that is not for a primary.

    Args:
        wanted: the recipe's [encoder].
        shape: the primary's.
        primary: name of the primary, for the message.
    """
    if not wanted.is_of(shape):
        raise RecipeError(
            f"the recipe's [encoder] is not that of {primary}. The recipe has ({wanted}), the primary ({shape}). "
            "Correct the recipe, pretrain a primary with it, or name the primary as its source.model and leave "
            "[encoder] and [pretraining] out."
        )


def load_embeddings(folder: Path) -> Embeddings:
    """Open a language's embeddings."""
    artifact = Artifact.load(folder, Kind.EMBEDDINGS)
    vocabulary, tokenizer = _load_vocabulary(artifact)
    return Embeddings(
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        language=str(artifact.manifest.language),
        aligned_with=str(artifact.manifest.aligned_with),
        fingerprint=artifact.fingerprint,
        manifest=artifact.manifest,
    )


@dataclass(frozen=True)
class FreshLayers:
    """MINIPOST's fresh layers, which make a mini-model of the bottom of the primary that they were trained in."""

    layers: Sequence[nn.Module]
    head: MlmHead | None
    """MLM head that was trained with them; None where it is the primary's last one."""
    depth: int
    """Bottom layers of the primary that it shares."""
    aligned_with: str
    fingerprint: str
    manifest: Manifest

    def build_model(self, primary: LoadedPrimary) -> Encoder:
        """The mini-model: an encoder that shares all but the fresh layers with the primary."""
        what, again = f"the mini-model of depth {self.depth}", "Build the mini-model again (`lingraft mini`)"
        require_aligned(what, self.aligned_with, primary.fingerprint, again)
        return mini_model(primary.encoder, self.depth, self.layers, self.head)


def load_mini(folder: Path) -> FreshLayers:
    """Open a MINIPOST mini-model."""
    artifact = Artifact.load(folder, Kind.MINI)
    manifest = artifact.manifest
    shape: EncoderShape = manifest.detail("shape", EncoderShape)
    layers = build_layers(shape, range(1, 1 + manifest.detail("fresh_layers", PositiveInt)))
    load_tensors(layers, artifact, "layers", elsewhere=())
    head = MlmHead(shape) if HEAD_PART in manifest.fingerprints else None
    if head:
        load_tensors(head, artifact, HEAD_PART, elsewhere=())
    return FreshLayers(
        layers=[*layers],
        head=head,
        depth=manifest.detail("depth", PositiveInt),
        aligned_with=str(manifest.aligned_with),
        fingerprint=artifact.fingerprint,
        manifest=manifest,
    )


def load_tensors(module: nn.Module, artifact: Artifact, part: str, elsewhere: tuple[str, ...]) -> None:
    """Load one part; whatever does not come from elsewhere must be in it, or random weights would stay unnoticed."""
    tensors = artifact.tensors(part)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    whole = module.state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in whole.items() if not name.startswith(elsewhere)}
    if found != expected:
        differing = sorted({name for name, _ in found.items() ^ expected.items()})
        raise ArtifactError(
            f"{part} of {artifact.folder} does not fit the shape in its manifest: {differing}. "
            f"It was made by lingraft {artifact.manifest.library_version}; make it again with this one."
        )
    module.load_state_dict(tensors, strict=False)


def _load_vocabulary(artifact: Artifact) -> tuple[Vocabulary, Tokenizer]:
    tensors = artifact.tensors("vocabulary")
    tokenizer = Tokenizer.from_artifact(artifact)
    own = len(tokenizer) - len(tokenizer.borrowed_B)
    if own != len(tensors["table_VD"]):
        raise TokenizerError(
            f"{artifact.folder} has {len(tensors['table_VD'])} rows, but its tokenizer has {own} pieces. "
            "Make the artifact again, or fetch it anew."
        )
    return make_vocabulary(tensors["table_VD"], tensors["bias_V"], tokenizer.special), tokenizer
