"""The official metric of an exported model under PyTorch and under ONNX Runtime, on the same rows.

Legend: B batch, T tokens, M masked tokens, D width, N blocks.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.bundle.format import FEATURES, OUTPUTS, TableFormat
from lingraft.bundle.runtime import Body
from lingraft.export.exported_model import ExportedModel
from lingraft.export.language import ExportedLanguage, TokenBatch
from lingraft.model.encoder import Encoder
from lingraft.training import masked_lm


def score_language(
    opened: Body, exported: ExportedModel, exported_language: ExportedLanguage, table_format: TableFormat, rows: Any
) -> dict[str, float]:
    """Measure the metric of one language under ONNX Runtime and under PyTorch.

    Args:
        opened: body in ONNX Runtime.
        exported: model in PyTorch.
        exported_language: language to evaluate.
        table_format: number format of the table that ONNX Runtime's rows come from.
        rows: examples of the task, or blocks (N, T) of token ids for a primary.

    Returns:
        `score`, the metric under ONNX Runtime, and `loss`, by how much PyTorch with the float32 table is above it.
    """
    exported.set_vocabulary(exported_language.vocabulary)
    whole = _score(exported, exported.net, exported_language, rows)
    exported.set_vocabulary(exported_language.as_stored(table_format))
    net = OnnxNet(opened, exported) if exported.task else OnnxEncoder(opened, exported)
    score = _score(exported, net, exported_language, rows)
    return {"score": score, "loss": whole - score}


def _score(exported: ExportedModel, net: Any, exported_language: ExportedLanguage, rows: Any) -> float:
    if exported.task is None:
        top = exported.shape.layers
        return masked_lm.accuracy(net, rows, (top,))[top]
    data = exported.task.prepare(rows, exported.labels, exported_language.tokenizer, exported.shape)
    return exported.task.judge(net, data, exported_language.tokenizer.language).score


def onnx_outputs(opened: Body, exported: ExportedModel, drawn: TokenBatch) -> dict[str, Any]:
    """Compute the outputs with ONNX Runtime, from the vocabulary that the PyTorch model has at the moment."""
    embedded_BTD = nn.functional.embedding(drawn.tokens_BT, exported.encoder.vocabulary.table_VD.detach())
    types_BT = torch.zeros_like(drawn.tokens_BT) if drawn.types_BT is None else drawn.types_BT
    types = types_BT.numpy() if opened.has_segments else None
    return opened.run(embedded_BTD.numpy(), drawn.visible_BT.numpy(), types)


class OnnxNet(nn.Module):
    """A body in ONNX Runtime with the interface of a `TaskNet`, so that a task's kind evaluates it like PyTorch's."""

    def __init__(self, opened: Body, exported: ExportedModel) -> None:
        super().__init__()
        self.out = exported.net.out
        self._opened = opened
        self._exported = exported

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """Compute the logits of a batch."""
        (name,) = OUTPUTS[self._exported.kind]
        return torch.from_numpy(
            onnx_outputs(self._opened, self._exported, TokenBatch(tokens_BT, visible_BT, types_BT))[name]
        )


class OnnxEncoder(Encoder):
    """A primary in ONNX Runtime with the interface of an `Encoder`, so that it is evaluated on masked tokens."""

    def __init__(self, opened: Body, exported: ExportedModel) -> None:
        with torch.device("meta"):
            super().__init__(exported.shape, 0)
        self.vocabulary = exported.encoder.vocabulary
        self.positions_TD = exported.encoder.positions_TD
        self._opened = opened
        self._exported = exported

    def masked_features(
        self, tokens_BT: Tensor, positions_M: Tensor, depths: Iterable[int], visible_BT: Tensor | None = None
    ) -> dict[int, Tensor]:
        """Compute the features (M, D) of masked tokens at the deepest head, whose products with a table are logits."""
        visible_BT = torch.ones_like(tokens_BT, dtype=torch.bool) if visible_BT is None else visible_BT
        features_BTD = onnx_outputs(self._opened, self._exported, TokenBatch(tokens_BT, visible_BT, None))[FEATURES]
        return {self.shape.layers: torch.from_numpy(features_BTD).flatten(0, 1)[positions_M]}
