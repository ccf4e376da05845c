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
    golden_part,
    table_part,
)
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import PRIMARY
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.export.exported import Exported
from lingraft.model.encoder import Vocabulary
from lingraft.model.loading import Embeddings, Primary
from lingraft.model.swap import vocabulary_of
from lingraft.tasks.pairs import pad, pad_types

_STEPS = 127
_TINIEST = 1e-12
_GOLDEN_TOKENS = (24, 9, 1)
"""Lengths of golden rows, without their special tokens: so that all but one are padded."""


class Brought(NamedTuple):
    """What a language brings."""

    vocabulary: Vocabulary
    tokenizer: Tokenizer

    @classmethod
    def of(cls, brought: Primary | Embeddings) -> "Brought":
        """From an artifact."""
        held = brought.encoder.vocabulary if isinstance(brought, Primary) else brought.vocabulary
        return cls(held, brought.tokenizer)

    def stored(self, table_format: TableFormat) -> Vocabulary:
        """The vocabulary as a table in this format gives it back, in float32."""
        held = stored_rows(self.vocabulary.table_VD, table_format)
        table_VD = held[TABLE].float() * held[SCALE][:, None] if SCALE in held else held[TABLE].float()
        return vocabulary_of(table_VD, self.vocabulary.bias_V.detach(), self.vocabulary.special)


class Drawn(NamedTuple):
    """Rows of random ordinary pieces between their special tokens, padded."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None
    """The second half of each row in the second segment, where the family tells texts apart."""


def stored_rows(table_VD: Tensor, table_format: TableFormat) -> dict[str, Tensor]:
    """A table as it is stored; int8 rows each with the scale that gives them back."""
    table_VD = table_VD.detach()
    if table_format == "int8":
        scale_V = table_VD.abs().amax(1).clamp(min=_TINIEST) / _STEPS
        return {TABLE: (table_VD / scale_V[:, None]).round().to(torch.int8), SCALE: scale_V}
    return {TABLE: table_VD.to(torch.float16 if table_format == "float16" else torch.float32)}


def write_language(draft: Draft, brought: Brought, exported: Exported, table_format: TableFormat) -> None:
    """Write a language's folder."""
    language, special = brought.tokenizer.language, brought.tokenizer.special
    (draft.folder / language).mkdir()
    draft.tensors(table_part(language), stored_rows(brought.vocabulary.table_VD, table_format))
    if exported.kind == PRIMARY:
        draft.tensors(bias_part(language), {BIAS: brought.vocabulary.bias_V})
    shutil.copyfile(brought.tokenizer.model, draft.folder / language / brought.tokenizer.model.name)
    longest = exported.shape.block_tokens - 2
    drawn = draw(len(brought.vocabulary), [min(tokens, longest) for tokens in _GOLDEN_TOKENS], special, exported.shape)
    exported.speak(brought.stored(table_format))
    draft.tensors(golden_part(language), golden(drawn, exported.answers(*drawn)))


def tokenizer_facts(brought: Brought) -> dict[str, Any]:
    """What a manifest says of a tokenizer."""
    return {"file": brought.tokenizer.model.name, "special_ids": brought.tokenizer.special._asdict()}


def golden(drawn: Drawn, answers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rows and their answers, as they are stored."""
    types = {} if drawn.types_BT is None else {TYPES: drawn.types_BT}
    return {TOKENS: drawn.tokens_BT, VISIBLE: drawn.visible_BT, **types, **answers}


def draw(vocabulary: int, lengths: list[int], special: SpecialIds, shape: EncoderShape) -> Drawn:
    """Rows of so many random pieces each; the same whenever it is called."""
    generator = torch.Generator().manual_seed(1)
    ordinary = torch.tensor(sorted(set(range(vocabulary)) - set(special)))
    draws = [ordinary[torch.randint(len(ordinary), (length,), generator=generator)] for length in lengths]
    rows = [[special.begin, *drawn.tolist(), special.end] for drawn in draws]
    halves = [[int(2 * place > len(row)) for place in range(len(row))] for row in rows]
    return Drawn(*pad(rows, special.pad), pad_types(halves if shape.family.segments > 1 else None))
