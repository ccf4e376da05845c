"""A language's part of a bundle: its table in a number format, its tokenizer, and its self-test.

Legend: B rows, T tokens, V vocabulary, D width.
"""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

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
from lingraft.config.tasks import PRIMARY
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.export.exported_model import ExportedModel, TokenBatch
from lingraft.model.encoder import BorrowedRows, Vocabulary
from lingraft.model.loading import Embeddings, LoadedPrimary
from lingraft.model.swap import make_vocabulary
from lingraft.tasks.pairs import pad, pad_types

_INT8_MAX = 127
_SMALLEST_MAXIMUM = 1e-12
_SELF_TEST_TOKENS = (24, 9, 1)
"""Lengths of the self-test's rows without special tokens; they differ, so that all rows but one are padded."""


class ExportedLanguage(NamedTuple):
    """Vocabulary and tokenizer of a language to export, and the number format of its table."""

    vocabulary: Vocabulary
    tokenizer: Tokenizer
    table_format: TableFormat
    source: "ExportedLanguage | None" = None
    """Source language, whose rows are borrowed."""

    @classmethod
    def from_artifact(
        cls, artifact: LoadedPrimary | Embeddings, table_format: TableFormat, source: "ExportedLanguage | None" = None
    ) -> Self:
        """Take the vocabulary and tokenizer of a primary or of embeddings."""
        vocabulary = artifact.source if isinstance(artifact, LoadedPrimary) else artifact.vocabulary
        return cls(vocabulary, artifact.tokenizer, table_format, source)

    @property
    def tag(self) -> str:
        """Language tag."""
        return self.tokenizer.language

    def as_stored(self) -> Vocabulary:
        """Return the vocabulary in float32, its table, and that of a source that it borrows from, rounded."""
        own, borrowed = self.vocabulary, self.vocabulary.borrowed
        stored_VD = restored_table(table_tensors(own.table_VD, self.table_format))
        if borrowed and self.source:
            borrowed = BorrowedRows(borrowed.ids_B, self.source.as_stored())
        return make_vocabulary(stored_VD, own.bias_V.detach(), own.special, borrowed)

    def tokenizer_facts(self) -> dict[str, Any]:
        """Return the details of the tokenizer for a bundle's manifest."""
        return {"file": self.tokenizer.model.name, "special_ids": self.tokenizer.special._asdict()}

    def random_batch(self, exported: ExportedModel, lengths: Sequence[int]) -> TokenBatch:
        """Return rows of random ordinary pieces between special tokens, the same in every call.

        The second half of each row is in the second segment if the family has segments. `lengths` count pieces without
        special tokens.
        """
        special = self.tokenizer.special
        generator = torch.Generator().manual_seed(1)
        ordinary = torch.tensor(sorted(set(range(len(self.vocabulary))) - set(special)))
        draws = [ordinary[torch.randint(len(ordinary), (length,), generator=generator)] for length in lengths]
        rows = [[special.begin, *drawn.tolist(), special.end] for drawn in draws]
        halves = [[int(2 * place > len(row)) for place in range(len(row))] for row in rows]
        return TokenBatch(*pad(rows, special.pad), pad_types(halves if exported.shape.family.segments > 1 else None))


def table_tensors(table_VD: Tensor, table_format: TableFormat) -> dict[str, Tensor]:
    """Return the tensors that store a table in a number format; int8 has a scale for each row besides."""
    table_VD = table_VD.detach()
    if table_format == "int8":
        scale_V = table_VD.abs().amax(1).clamp(min=_SMALLEST_MAXIMUM) / _INT8_MAX
        return {TABLE: (table_VD / scale_V[:, None]).round().to(torch.int8), SCALE: scale_V}
    return {TABLE: table_VD.to(torch.float16 if table_format == "float16" else torch.float32)}


def restored_table(stored: Mapping[str, Tensor]) -> Tensor:
    """Return a stored table in float32."""
    table_VD = stored[TABLE].float()
    return table_VD * stored[SCALE][:, None] if SCALE in stored else table_VD


def write_language(draft: Draft, language: ExportedLanguage, exported: ExportedModel) -> None:
    """Write a language's folder into a bundle: table, tokenizer, self-test, and output bias for a primary.

    Of borrowed pieces the tokenizer alone says whose rows they have.
    """
    tag, tokenizer = language.tag, language.tokenizer
    (draft.folder / tag).mkdir()
    draft.tensors(table_part(tag), table_tensors(language.vocabulary.table_VD, language.table_format))
    if exported.kind == PRIMARY:
        draft.tensors(bias_part(tag), {BIAS: language.vocabulary.bias_V})
    shutil.copyfile(tokenizer.model, draft.folder / tag / tokenizer.model.name)
    longest = exported.shape.block_tokens - 2
    batch = language.random_batch(exported, [min(tokens, longest) for tokens in _SELF_TEST_TOKENS])
    exported.set_vocabulary(language.as_stored())
    inputs = {TOKENS: batch.tokens_BT, VISIBLE: batch.visible_BT, TYPES: batch.types_BT}
    given = {name: tensor for name, tensor in inputs.items() if tensor is not None}
    draft.tensors(self_test_part(tag), given | exported.torch_outputs(batch))
