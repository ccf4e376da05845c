"""A language's part of a bundle: its table in a number format, its tokenizer, and its self-test.

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
"""Lengths of the self-test's rows without special tokens; they differ, so that all rows but one are padded."""


class ExportedLanguage(NamedTuple):
    """Vocabulary and tokenizer of a language to export."""

    vocabulary: Vocabulary
    tokenizer: Tokenizer

    @classmethod
    def from_artifact(cls, artifact: Primary | Embeddings) -> "ExportedLanguage":
        """Take the vocabulary and tokenizer of a primary or of embeddings."""
        held = artifact.encoder.vocabulary if isinstance(artifact, Primary) else artifact.vocabulary
        return cls(held, artifact.tokenizer)

    def as_stored(self, table_format: TableFormat) -> Vocabulary:
        """Return the vocabulary with its table rounded to a number format, in float32."""
        held = table_tensors(self.vocabulary.table_VD, table_format)
        table_VD = held[TABLE].float() * held[SCALE][:, None] if SCALE in held else held[TABLE].float()
        return make_vocabulary(table_VD, self.vocabulary.bias_V.detach(), self.vocabulary.special)


class TokenBatch(NamedTuple):
    """Padded rows of token ids."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None
    """Segment ids; None if the family has no segments."""


def table_tensors(table_VD: Tensor, table_format: TableFormat) -> dict[str, Tensor]:
    """Return the tensors that store a table in a number format; int8 has a scale for each row besides."""
    table_VD = table_VD.detach()
    if table_format == "int8":
        scale_V = table_VD.abs().amax(1).clamp(min=_SMALLEST_MAXIMUM) / _INT8_MAX
        return {TABLE: (table_VD / scale_V[:, None]).round().to(torch.int8), SCALE: scale_V}
    return {TABLE: table_VD.to(torch.float16 if table_format == "float16" else torch.float32)}


def write_language(
    draft: Draft, exported_language: ExportedLanguage, exported: ExportedModel, table_format: TableFormat
) -> None:
    """Write a language's folder into a bundle: table, tokenizer, self-test, and output bias for a primary."""
    language = exported_language.tokenizer.language
    special = exported_language.tokenizer.special
    (draft.folder / language).mkdir()
    draft.tensors(table_part(language), table_tensors(exported_language.vocabulary.table_VD, table_format))
    if exported.kind == PRIMARY:
        draft.tensors(bias_part(language), {BIAS: exported_language.vocabulary.bias_V})
    shutil.copyfile(exported_language.tokenizer.model, draft.folder / language / exported_language.tokenizer.model.name)
    longest = exported.shape.block_tokens - 2
    drawn = random_batch(
        len(exported_language.vocabulary),
        [min(tokens, longest) for tokens in _SELF_TEST_TOKENS],
        special,
        exported.shape,
    )
    exported.set_vocabulary(exported_language.as_stored(table_format))
    draft.tensors(self_test_part(language), self_test_tensors(drawn, exported.torch_outputs(*drawn)))


def tokenizer_facts(exported_language: ExportedLanguage) -> dict[str, Any]:
    """Return the details of a tokenizer for a bundle's manifest."""
    return {
        "file": exported_language.tokenizer.model.name,
        "special_ids": exported_language.tokenizer.special._asdict(),
    }


def self_test_tensors(drawn: TokenBatch, answers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that store a self-test: inputs and expected outputs."""
    types = {} if drawn.types_BT is None else {TYPES: drawn.types_BT}
    return {TOKENS: drawn.tokens_BT, VISIBLE: drawn.visible_BT, **types, **answers}


def random_batch(vocabulary: int, lengths: list[int], special: SpecialIds, shape: EncoderShape) -> TokenBatch:
    """Return rows of random ordinary pieces between special tokens, the same in every call.

    The second half of each row is in the second segment if the family has segments.

    Args:
        vocabulary: number of pieces.
        lengths: number of pieces in each row, without special tokens.
        special: ids of special pieces, which are not drawn.
        shape: shape of the encoder.
    """
    generator = torch.Generator().manual_seed(1)
    ordinary = torch.tensor(sorted(set(range(vocabulary)) - set(special)))
    draws = [ordinary[torch.randint(len(ordinary), (length,), generator=generator)] for length in lengths]
    rows = [[special.begin, *drawn.tolist(), special.end] for drawn in draws]
    halves = [[int(2 * place > len(row)) for place in range(len(row))] for row in rows]
    return TokenBatch(*pad(rows, special.pad), pad_types(halves if shape.family.segments > 1 else None))
