"""A language's part of a bundle: its table in a number format, its tokenizer, and its golden answers.

Legend: B rows, T tokens, V vocabulary, D width.
"""

import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Draft
from lingraft.bundle.format import (
    BIAS,
    SCALE,
    TABLE,
    TOKENS,
    TYPES,
    VISIBLE,
    TableFormat,
    bias_part,
    self_test_part,
    table_part,
)
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import PRIMARY
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.export.exported_model import ExportedModel
from lingraft.model.encoder import Vocabulary
from lingraft.model.loading import Embeddings, Primary
from lingraft.model.swap import make_vocabulary
from lingraft.tasks.pairs import pad, pad_types

_INT8_MAX = 127
_SMALLEST_MAXIMUM = 1e-12
_SELF_TEST_TOKENS = (24, 9, 1)
"""Lengths of golden rows, without their special tokens: so that all but one are padded."""


class ExportedLanguage(NamedTuple):
    """What a language brings."""

    vocabulary: Vocabulary
    tokenizer: Tokenizer

    @classmethod
    def from_artifact(cls, artifact: Primary | Embeddings) -> "ExportedLanguage":
        """From an artifact."""
        held = artifact.encoder.vocabulary if isinstance(artifact, Primary) else artifact.vocabulary
        return cls(held, artifact.tokenizer)

    def as_stored(self, table_format: TableFormat) -> Vocabulary:
        """The vocabulary as a table in this format gives it back, in float32."""
        held = table_tensors(self.vocabulary.table_VD, table_format)
        table_VD = held[TABLE].float() * held[SCALE][:, None] if SCALE in held else held[TABLE].float()
        return make_vocabulary(table_VD, self.vocabulary.bias_V.detach(), self.vocabulary.special)


class TokenBatch(NamedTuple):
    """Rows of random ordinary pieces between their special tokens, padded."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None
    """The second half of each row in the second segment, where the family tells texts apart."""


def table_tensors(table_VD: Tensor, table_format: TableFormat) -> dict[str, Tensor]:
    """A table as it is stored; int8 rows each with the scale that gives them back."""
    table_VD = table_VD.detach()
    if table_format == "int8":
        scale_V = table_VD.abs().amax(1).clamp(min=_SMALLEST_MAXIMUM) / _INT8_MAX
        return {TABLE: (table_VD / scale_V[:, None]).round().to(torch.int8), SCALE: scale_V}
    return {TABLE: table_VD.to(torch.float16 if table_format == "float16" else torch.float32)}


def write_language(draft: Draft, brought: ExportedLanguage, exported: ExportedModel, table_format: TableFormat) -> None:
    """Write a language's folder."""
    language, special = brought.tokenizer.language, brought.tokenizer.special
    (draft.folder / language).mkdir()
    draft.tensors(table_part(language), table_tensors(brought.vocabulary.table_VD, table_format))
    if exported.kind == PRIMARY:
        draft.tensors(bias_part(language), {BIAS: brought.vocabulary.bias_V})
    shutil.copyfile(brought.tokenizer.model, draft.folder / language / brought.tokenizer.model.name)
    longest = exported.shape.block_tokens - 2
    drawn = random_batch(
        len(brought.vocabulary), [min(tokens, longest) for tokens in _SELF_TEST_TOKENS], special, exported.shape
    )
    exported.set_vocabulary(brought.as_stored(table_format))
    draft.tensors(self_test_part(language), self_test_tensors(drawn, exported.torch_outputs(*drawn)))


def tokenizer_facts(brought: ExportedLanguage) -> dict[str, Any]:
    """What a manifest says of a tokenizer."""
    return {"file": brought.tokenizer.model.name, "special_ids": brought.tokenizer.special._asdict()}


def self_test_tensors(drawn: TokenBatch, answers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rows and their answers, as they are stored."""
    types = {} if drawn.types_BT is None else {TYPES: drawn.types_BT}
    return {TOKENS: drawn.tokens_BT, VISIBLE: drawn.visible_BT, **types, **answers}


def random_batch(vocabulary: int, lengths: list[int], special: SpecialIds, shape: EncoderShape) -> TokenBatch:
    """Rows of so many random pieces each; the same whenever it is called."""
    generator = torch.Generator().manual_seed(1)
    ordinary = torch.tensor(sorted(set(range(vocabulary)) - set(special)))
    draws = [ordinary[torch.randint(len(ordinary), (length,), generator=generator)] for length in lengths]
    rows = [[special.begin, *drawn.tolist(), special.end] for drawn in draws]
    halves = [[int(2 * place > len(row)) for place in range(len(row))] for row in rows]
    return TokenBatch(*pad(rows, special.pad), pad_types(halves if shape.family.segments > 1 else None))
