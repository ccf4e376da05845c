"""Learning by sentence pairs: a translation's vector is pulled to the source's vector of the sentence.

Reimers and Gurevych 2020 ("Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation") train all
of a student. Here the source's body is both teacher and student, and a language's own rows are all that is trained.

Legend: B pairs of a batch, N pairs, T tokens, D width, V vocabulary, K depths.
"""

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft import ranks
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import cache_folder
from lingraft.artifacts.locks import folder_lock, remove_partial_writes
from lingraft.artifacts.manifest import Kind, json_fingerprint
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Step
from lingraft.config.training import Adaptation, Pooling
from lingraft.config.translations import ParallelText
from lingraft.console import say, with_progress
from lingraft.data.bilingual_dictionary import hash_parallel
from lingraft.data.language_checks import PairSample, require_languages
from lingraft.data.parallel_text import Pair, file_names, read_pairs, without_held_out
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError, RecipeError, TextError
from lingraft.model.encoder import Encoder
from lingraft.model.heads import pool
from lingraft.model.loading import LoadedPrimary
from lingraft.stages.embeddings import mined_pairs_of
from lingraft.tasks.retrieval import TokenizedTexts
from lingraft.tasks.task_kind import batch_sizes, lengths
from lingraft.training import precision
from lingraft.training.batches import TokenBatches, to_device
from lingraft.training.loop import Plan

_PART = "vectors"
_EMBEDDED_TOKENS = 4096
"""Most tokens that are embedded at once."""


class PairBatch(NamedTuple):
    """Translations, and the vectors of the source's sentences."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None
    vectors_BKD: Tensor


def has_pairs(recipe: Recipe, language: str, initial: Path | None = None) -> bool:
    """Whether there are sentence pairs that a language may learn from, given or mined; see `learned_pairs`."""
    return language in recipe.alignment.parallel or mined_pairs_of(initial) is not None


def learned_pairs(recipe: Recipe, language: str, initial: Path | None = None) -> tuple[Pair, ...]:
    """Read the sentence pairs that a language learns from; those that alignment is measured over are left out.

    Args:
        recipe: recipe with [alignment].
        language: tag of the language.
        initial: embeddings to start from, whose mined pairs are taken where [alignment] parallel has none.

    Raises:
        RecipeError: the language has no pairs.
        TextError: they cannot be read, are not in the languages of source and target, or all of them are held out.
    """
    files = recipe.alignment.parallel.get(language) or mined_pairs_of(initial)
    if files is None:
        raise RecipeError(
            f"adaptation.pairs needs sentences with their translations in {language!r}, and [alignment] parallel has "
            f"some in {sorted(recipe.alignment.parallel)} only, and none were mined. Add them, or leave "
            "adaptation.pairs out."
        )
    return _checked_pairs(files, (recipe.source.language, language), hash_parallel(files)["translations"])


@lru_cache(maxsize=1)
def _checked_pairs(files: ParallelText, languages: tuple[str, str], content: str) -> tuple[Pair, ...]:
    """Pairs of files with a hash of their content: whoever has counted them need not read them again to learn."""
    looked = PairSample(file_names(files))
    pairs = tuple(without_held_out(looked.sampled(read_pairs(files, languages))))
    require_languages(looked, languages)
    if not pairs:
        raise TextError(f"{file_names(files)}: all pairs are held out to measure alignment. Give more pairs.")
    return pairs


@dataclass(frozen=True, eq=False)
class PairData:
    """Sentence pairs of a language; implements `Prepared`."""

    encoder: Encoder
    """The primary's, whose bottom layers or all of which vectors go through."""
    translations: TokenizedTexts
    vectors_NKD: Tensor
    """Vectors of the source's sentences after each of `depths`, with the source's own embeddings."""
    depths: tuple[int, ...]
    pooling: Pooling

    @property
    def truncated(self) -> int:
        """Number of translations of which only a part fits a block."""
        return self.translations.encoded.truncated

    @classmethod
    def load(
        cls,
        recipe: Recipe,
        source: LoadedPrimary,
        pieces: Tokenizer,
        depths: Sequence[int],
        initial: Path | None = None,
        updates: int | None = None,
    ) -> Self | None:
        """Read the pairs that a language learns from, and embed the source's sentences; None if it learns by none.

        Held-out pairs, which alignment is measured over, are left out.

        Args:
            recipe: recipe with [alignment] and [adaptation.pairs].
            source: primary with its own vocabulary.
            pieces: tokenizer of the language.
            depths: depths of the primary that the language may be adapted over.
            initial: embeddings to start from, whose mined pairs are taken where [alignment] parallel has none.
            updates: most updates that the pairs are for; sentences that none reaches are not embedded. None: any.

        Raises:
            RecipeError: the language has no pairs.
            TextError: they cannot be read, are not in the languages of source and target, or all of them are held out.
        """
        settings, shape = recipe.adaptation.pairs, source.encoder.shape
        if settings is None:
            return None
        pairs = learned_pairs(recipe, pieces.language, initial)
        wanted = (shape.layers,) if settings.layers == "all" else tuple(dict.fromkeys(depths))
        # Both sides of a pair stand in the same role.
        prefixed = zip(itertools.cycle(settings.prefixes or ("",)), pairs, strict=False)
        texts = [(prefix + pair.source, prefix + pair.target) for prefix, pair in prefixed]
        found = cls(
            encoder=source.encoder,
            translations=TokenizedTexts.of([target for _, target in texts], "", pieces, shape),
            vectors_NKD=torch.zeros(len(texts), len(wanted), shape.width),
            depths=wanted,
            pooling=settings.pooling,
        )
        reached = found.stream(recipe.adaptation).rows_until(len(texts) if updates is None else updates)
        sentences = TokenizedTexts.of([texts[row][0] for row in reached.tolist()], "", source.tokenizer, shape)
        found.vectors_NKD[reached] = _cached_vectors(source, sentences, wanted, settings.pooling)
        return found

    def __len__(self) -> int:
        return len(self.translations)

    def batch(self, chosen: Tensor) -> PairBatch:
        """Return pairs by their numbers."""
        return PairBatch(*self.translations.batch(chosen), self.vectors_NKD[chosen])

    def length(self, row: int) -> int:
        """Return the tokens of a translation."""
        return self.translations.length(row)

    def targets(self, chosen: Tensor) -> int:
        """Return the number of pairs."""
        return len(chosen)

    def stream(self, settings: Adaptation) -> TokenBatches:
        """Return the stream of pairs."""
        assert settings.pairs
        return TokenBatches(self, settings.pairs.batch_tokens, settings.seed)

    def plan(self, masked: Plan, step: Step, settings: Adaptation) -> Plan:
        """Return a plan that learns by pairs, with the schedule of one by masked tokens."""
        assert settings.pairs
        encoder = self.encoder.to(precision.device())
        # Several processes add up their gradients as dense ones.
        encoder.sparse_gradient = ranks.world_size() == 1
        place = 0 if settings.pairs.layers == "all" else self.depths.index(step.layers - step.fresh_layers)
        return Plan(PairLoss(self, place), replace(masked.schedule, tokens_per_step=settings.pairs.batch_tokens))


class PairLoss(nn.Module):
    """Loss of a batch of pairs."""

    def __init__(self, data: PairData, place: int) -> None:
        """Create the loss; `place` is that of the depth that vectors are taken after, in the data's depths."""
        super().__init__()
        self.encoder, self.pooling = data.encoder, data.pooling
        self.place, self.depth = place, data.depths[place]

    def forward(self, batch: PairBatch) -> Tensor:
        """Return the mean squared error, a scalar, over pairs and the vectors' entries."""
        self.encoder.eval()  # dropout would blur a vector that is to be one computed without it
        batch = to_device(batch, self.encoder.device)
        vectors_BD = _pooled(self.encoder, batch, (self.depth,), self.pooling)[:, 0]
        return F.mse_loss(vectors_BD, batch.vectors_BKD[:, self.place])


def _cached_vectors(
    source: LoadedPrimary, sentences: TokenizedTexts, depths: tuple[int, ...], pooling: Pooling
) -> Tensor:
    """Return the source's vectors (N, K, D) of sentences, from the user's cache if they were computed before."""
    made_from = {"primary": source.fingerprint, "depths": depths, "pooling": pooling, "rows": sentences.encoded.rows}
    folder = cache_folder("sentence-vectors") / json_fingerprint(made_from)
    with folder_lock(folder, wait=True):
        remove_partial_writes(folder)
        if folder.exists():
            try:
                return Artifact.load(folder, Kind.VECTORS).tensors(_PART)[_PART]
            except ArtifactError as error:
                say(f"{folder} is damaged, and is made again: {error}")
                shutil.rmtree(folder)
        vectors_NKD = _source_vectors(source.encoder, sentences, depths, pooling)
        try:
            with artifact.create(folder, Kind.VECTORS) as draft:
                draft.tensors(_PART, {_PART: vectors_NKD})
        except ArtifactError as error:
            say(f"the vectors of the source's sentences are not kept for the next time: {error}")
    return vectors_NKD


@torch.inference_mode()
def _source_vectors(encoder: Encoder, sentences: TokenizedTexts, depths: tuple[int, ...], pooling: Pooling) -> Tensor:
    encoder.to(precision.device()).eval()
    vectors_NKD = torch.empty(len(sentences), len(depths), encoder.shape.width)
    lengths_N = lengths(sentences)
    batches = lengths_N.argsort(stable=True).split(batch_sizes(lengths_N, _EMBEDDED_TOKENS))
    for chosen in with_progress(batches, "embed the source's sentences", "batch", len(batches)):
        batch = PairBatch(*sentences.batch(chosen), vectors_NKD[chosen])
        vectors_NKD[chosen] = _pooled(encoder, to_device(batch, encoder.device), depths, pooling).cpu()
    return vectors_NKD


def _pooled(encoder: Encoder, batch: PairBatch, depths: tuple[int, ...], pooling: Pooling) -> Tensor:
    """Vectors (B, K, D) of texts on the encoder's device after some depths, in float32."""
    hidden = encoder.hidden_states(batch.tokens_BT, depths, batch.visible_BT, batch.types_BT)
    return torch.stack([pool(hidden[depth], batch.visible_BT, pooling).float() for depth in depths], dim=1)
