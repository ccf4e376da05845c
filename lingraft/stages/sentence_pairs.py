"""Learning by sentence pairs: a translation's vector is pulled to the source's vector of the sentence.

Reimers and Gurevych 2020 ("Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation") train all
of a student. Here the source's body is both teacher and student, and a language's embeddings are all that is trained.

Legend: B pairs of a batch, N pairs, T tokens, D width, V vocabulary, K depths.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.recipe import Recipe
from lingraft.config.systems import Step
from lingraft.config.training import Adaptation, Pooling
from lingraft.data.parallel_text import file_names, is_held_out, read_pairs
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RecipeError, TextError
from lingraft.model.encoder import Encoder
from lingraft.model.heads import pool
from lingraft.model.loading import Primary
from lingraft.tasks.retrieval import TokenizedTexts
from lingraft.tasks.task_kind import by_length
from lingraft.training import precision
from lingraft.training.batches import masked_lm_stream, task_stream
from lingraft.training.loop import Phase, Stream
from lingraft.training.masked_lm import MaskedLmLoss
from lingraft.training.prefetch import to_device


class PairBatch(NamedTuple):
    """Translations, and the vectors of the source's sentences."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None
    vectors_BKD: Tensor


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
    def load(cls, recipe: Recipe, source: Primary, pieces: Tokenizer, depths: Sequence[int]) -> Self | None:
        """Read the pairs that a language learns from, and embed the source's sentences; None if it learns by none.

        Held-out pairs, which alignment is measured over, are left out.

        Args:
            recipe: recipe with [alignment] and [adaptation.pairs].
            source: primary with its own vocabulary.
            pieces: tokenizer of the language.
            depths: depths of the primary that the language may be adapted over.

        Raises:
            RecipeError: the language has no pairs.
            TextError: they cannot be read, or all of them are held out.
        """
        settings, shape = recipe.adaptation.pairs, source.encoder.shape
        if settings is None:
            return None
        files = recipe.alignment.parallel.get(pieces.language)
        if files is None:
            raise RecipeError(
                f"adaptation.pairs needs sentences with their translations in {pieces.language!r}, and [alignment] "
                f"parallel has some in {sorted(recipe.alignment.parallel)} only. Add them, or leave adaptation.pairs "
                "out."
            )
        pairs = [pair for pair in read_pairs(files) if not is_held_out(pair)]
        if not pairs:
            raise TextError(f"{file_names(files)}: all pairs are held out to measure alignment. Give more pairs.")
        wanted = (shape.layers,) if settings.layers == "all" else tuple(dict.fromkeys(depths))
        # Both sides of a pair stand in the same role.
        prefixed = zip(itertools.cycle(settings.prefixes or ("",)), pairs, strict=False)
        texts = [(prefix + pair.source, prefix + pair.target) for prefix, pair in prefixed]
        sentences = TokenizedTexts.of([sentence for sentence, _ in texts], "", source.tokenizer, shape)
        return cls(
            encoder=source.encoder,
            translations=TokenizedTexts.of([target for _, target in texts], "", pieces, shape),
            vectors_NKD=_source_vectors(source.encoder, sentences, wanted, settings.pooling),
            depths=wanted,
            pooling=settings.pooling,
        )

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

    def stream(self, blocks: Blocks, settings: Adaptation) -> Stream:
        """Return the stream of pairs, behind the blocks of masked language modelling where that has a weight."""
        assert settings.pairs
        of_pairs = task_stream(self, settings.pairs.batch_pairs, None, settings.seed)
        if not settings.pairs.masked_weight:
            return of_pairs
        of_blocks = masked_lm_stream(blocks, settings)
        return lambda step: [*of_blocks(step), *of_pairs(step)]

    def phase(self, masked: Phase, step: Step, settings: Adaptation) -> Phase:
        """Return a phase that learns by pairs, with the schedule and the weighted loss of one by masked tokens."""
        assert settings.pairs
        assert isinstance(masked.loss_of, MaskedLmLoss)
        self.encoder.to(precision.device()).train().recompute = settings.recompute
        place = 0 if settings.pairs.layers == "all" else self.depths.index(step.layers - step.fresh_layers)
        loss = PairLoss(self, place, masked.loss_of, settings.pairs.masked_weight)
        tokens = settings.pairs.batch_pairs * self.encoder.shape.block_tokens
        if settings.pairs.masked_weight:
            tokens += masked.schedule.tokens_per_step
        return Phase(loss, replace(masked.schedule, tokens_per_step=tokens))


class PairLoss(nn.Module):
    """Loss of a batch of pairs or of blocks; those of a step are added."""

    def __init__(self, data: PairData, place: int, masked: MaskedLmLoss, masked_weight: float) -> None:
        """Create the loss.

        Args:
            data: pairs.
            place: place of the depth that vectors are taken after, in the data's depths.
            masked: loss of masked language modelling.
            masked_weight: its weight.
        """
        super().__init__()
        self.encoder, self.pooling = data.encoder, data.pooling
        self.place, self.depth = place, data.depths[place]
        self.masked, self.masked_weight = masked, masked_weight

    def forward(self, batch: object) -> Tensor:
        """Return the loss, a scalar: of pairs the mean squared error, over pairs and the vectors' entries."""
        if not isinstance(batch, PairBatch):
            return self.masked_weight * self.masked(batch)
        batch = to_device(batch, self.encoder.device)
        vectors_BD = _pooled(self.encoder, batch, (self.depth,), self.pooling)[:, 0]
        wanted_BD = batch.vectors_BKD[:, self.place]
        # Processes that train side by side expect a gradient of everything trained from each of them.
        return F.mse_loss(vectors_BD, wanted_BD) + 0.0 * self.encoder.vocabulary.bias_V.sum()


@torch.inference_mode()
def _source_vectors(encoder: Encoder, sentences: TokenizedTexts, depths: tuple[int, ...], pooling: Pooling) -> Tensor:
    encoder.to(precision.device()).eval()
    vectors_NKD = torch.empty(len(sentences), len(depths), encoder.shape.width)
    for chosen in by_length(sentences, "embed the source's sentences"):
        batch = PairBatch(*sentences.batch(chosen), vectors_NKD[chosen])
        vectors_NKD[chosen] = _pooled(encoder, to_device(batch, encoder.device), depths, pooling).cpu()
    return vectors_NKD


def _pooled(encoder: Encoder, batch: PairBatch, depths: tuple[int, ...], pooling: Pooling) -> Tensor:
    """Vectors (B, K, D) of texts on the encoder's device after some depths, in float32."""
    hidden = encoder.hidden_states(batch.tokens_BT, depths, batch.visible_BT, batch.types_BT)
    return torch.stack([pool(hidden[depth], batch.visible_BT, pooling).float() for depth in depths], dim=1)
