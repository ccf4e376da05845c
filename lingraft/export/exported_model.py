"""The model to export, a finetuned task or a primary itself: its outputs in PyTorch, and its graph.

Legend: B batch, T tokens, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Draft
from lingraft.bundle.format import (
    EMBEDDED,
    FEATURES,
    HIDDEN,
    OUTPUTS,
    ROW_OUTPUTS,
    TYPES,
    VISIBLE,
    BundleKind,
    Precision,
    body_file,
    body_part,
)
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import PRIMARY, Task
from lingraft.export import heads
from lingraft.export.body import BodyInputs, add_body
from lingraft.export.graph import Graph
from lingraft.export.matrix_products import COMPUTE_DTYPES
from lingraft.model.encoder import Encoder, MlmHead, Vocabulary
from lingraft.model.loading import Primary
from lingraft.tasks.kinds import TaskKind
from lingraft.tasks.loading import kind_of
from lingraft.tasks.model import TaskModel


@dataclass(frozen=True)
class ExportedModel:
    """A body with a head, in PyTorch."""

    name: str
    kind: BundleKind
    net: Any
    """Net of the task (`lingraft.tasks.kinds.TaskNet`), or the primary's `Encoder`."""
    labels: list[str]
    settings: Task | None
    """Settings of the task; None for a primary."""

    @classmethod
    def of_task(cls, model: TaskModel) -> "ExportedModel":
        """Wrap a finetuned task."""
        return cls(model.name, model.settings.kind, model.net.eval(), model.labels, model.settings)

    @classmethod
    def of_primary(cls, primary: Primary) -> "ExportedModel":
        """Wrap a primary with its deepest MLM head."""
        return cls(PRIMARY, PRIMARY, primary.encoder.eval(), [], None)

    @property
    def task(self) -> TaskKind | None:
        """Evaluation of the task's kind; None for a primary."""
        return kind_of(self.settings) if self.settings else None

    @property
    def encoder(self) -> Encoder:
        """Encoder without the task's head."""
        return cast(Encoder, self.net if self.kind == PRIMARY else self.net.encoder)

    @property
    def shape(self) -> EncoderShape:
        """Shape of the body."""
        return self.encoder.shape

    @property
    def metric(self) -> str:
        """Name of the official metric of the task's kind."""
        return self.task.metric if self.task else "masked accuracy"

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Put a language's vocabulary into the encoder, in place."""
        self.encoder.vocabulary = vocabulary

    @torch.inference_mode()
    def torch_outputs(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None) -> dict[str, Tensor]:
        """Compute the outputs with PyTorch, by name."""
        if self.kind != PRIMARY:
            (name,) = OUTPUTS[self.kind]
            return {name: self.net(tokens_BT, visible_BT, types_BT)}
        top = self.shape.layers
        hidden_BTD = self.encoder.hidden_states(tokens_BT, (top,), visible_BT, types_BT)[top]
        return {HIDDEN: hidden_BTD, FEATURES: self._head.features(hidden_BTD)}

    def add_inputs(self, graph: Graph) -> BodyInputs:
        """Add the inputs of the body's graph."""
        size = ["batch", "tokens"]
        embedded = graph.input(EMBEDDED, torch.float32, [*size, self.shape.width])
        visible = graph.input(VISIBLE, torch.bool, size)
        return BodyInputs(
            embedded, visible, graph.input(TYPES, torch.int64, size) if self.shape.family.segments else None
        )

    def add_nodes(self, graph: Graph, inputs: BodyInputs, precision: Precision) -> heads.Outputs:
        """Add body and head to a graph, and return its outputs."""
        first_only = OUTPUTS[self.kind][0] in ROW_OUTPUTS
        hidden_BTD = add_body(graph, self.encoder, inputs, precision, first_only)
        hidden_BTD = heads.to_float32(graph, hidden_BTD, COMPUTE_DTYPES[precision])
        if first_only:
            return heads.add_classifier(graph, self.net, hidden_BTD)
        if self.kind == PRIMARY:
            name = f"heads.{self.shape.layers}"
            return heads.add_mlm_head(graph, self._head, name, self.shape.family.head_activation, hidden_BTD)
        return heads.add_token_head(graph, self.net.out, hidden_BTD, OUTPUTS[self.kind][0])

    @property
    def _head(self) -> MlmHead:
        return cast(MlmHead, self.encoder.heads[str(self.shape.layers)])


def write_bodies(draft: Draft, exported: ExportedModel, precisions: Sequence[Precision]) -> None:
    """Write the body's graph and weights in each precision."""
    for precision in precisions:
        graph = Graph(body_part(precision))
        outputs = exported.add_nodes(graph, exported.add_inputs(graph), precision)
        draft.tensors(body_part(precision), graph.parts[body_part(precision)])
        graph.save(draft.folder / body_file(precision), outputs, graph_metadata(exported))


def graph_metadata(exported: ExportedModel) -> Mapping[str, str]:
    """Return the metadata that runtimes show of a graph."""
    return {"task": exported.name, "kind": exported.kind, "labels": ", ".join(exported.labels)}
