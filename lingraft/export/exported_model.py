"""The model to export, a finetuned task or a primary itself: its outputs in PyTorch, and its graph.

Legend: B batch, T tokens, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, assert_never, cast

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
from lingraft.export.body import BodyInputs, add_body
from lingraft.export.graph_builder import Graph
from lingraft.export.heads import Outputs, add_classifier, add_mlm_head, add_token_head, add_vector_layers
from lingraft.model.encoder import Encoder, MlmHead, Vocabulary
from lingraft.model.loading import LoadedPrimary
from lingraft.tasks.finetuned import TaskModel
from lingraft.tasks.kinds import kind_of
from lingraft.tasks.task_kind import TaskKind


class TokenBatch(NamedTuple):
    """Padded rows of token ids."""

    tokens_BT: Tensor
    visible_BT: Tensor
    types_BT: Tensor | None
    """Segment ids; None if the family has no segments."""


@dataclass(frozen=True)
class ExportedModel:
    """A body with a head, in PyTorch."""

    name: str
    kind: BundleKind
    net: Any
    """Net of the task (`lingraft.tasks.task_kind.TaskNet`), or the primary's `Encoder`."""
    labels: list[str]
    settings: Task | None
    """Settings of the task; None for a primary."""

    @classmethod
    def of_task(cls, model: TaskModel) -> Self:
        """Wrap a finetuned task."""
        return cls(model.name, model.settings.kind, model.net.eval(), model.labels, model.settings)

    @classmethod
    def of_primary(cls, primary: LoadedPrimary) -> Self:
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
    def metadata(self) -> dict[str, str]:
        """Metadata that runtimes show of a graph."""
        return {"task": self.name, "kind": self.kind, "labels": ", ".join(self.labels)}

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Put a language's vocabulary into the encoder, in place."""
        self.encoder.vocabulary = vocabulary

    @torch.inference_mode()
    def torch_outputs(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Compute the outputs with PyTorch, by name."""
        if self.kind != PRIMARY:
            (name,) = OUTPUTS[self.kind]
            return {name: self.net(*batch)}
        top = self.shape.layers
        hidden_BTD = self.encoder.hidden_states(batch.tokens_BT, (top,), batch.visible_BT, batch.types_BT)[top]
        return {HIDDEN: hidden_BTD, FEATURES: self._head.features(hidden_BTD)}

    def add_nodes(self, graph: Graph, inputs: BodyInputs, precision: Precision) -> Outputs:
        """Add body and head to a graph, and return its outputs."""
        hidden_BTD = add_body(graph, self.encoder, inputs, precision, self._reads_first_only)
        match self.kind:
            case "documents" | "texts" | "pairs":
                return add_classifier(graph, self.net, hidden_BTD, inputs.visible_BT)
            case "questions" | "tags":
                return add_token_head(graph, self.net, hidden_BTD, OUTPUTS[self.kind][0])
            case "retrieval":
                return add_vector_layers(graph, self.net, hidden_BTD, inputs.visible_BT)
            case "primary":
                name = f"heads.{self.shape.layers}"
                return add_mlm_head(graph, self._head, name, self.shape, hidden_BTD)
            case unknown:
                assert_never(unknown)

    @property
    def _reads_first_only(self) -> bool:
        """Whether only the first token's state is read, so that the last layer need not compute the others."""
        if self.kind == "retrieval":
            return bool(self.net.settings.pooling == "first")
        return OUTPUTS[self.kind][0] in ROW_OUTPUTS and not self.shape.pools_mean

    @property
    def _head(self) -> MlmHead:
        return cast(MlmHead, self.encoder.heads[str(self.shape.layers)])


def write_bodies(draft: Draft, exported: ExportedModel, precisions: Sequence[Precision]) -> None:
    """Write the body's graph and weights in each precision."""
    size = ["batch", "tokens"]
    for precision in precisions:
        part = body_part(precision)
        graph = Graph(part)
        inputs = BodyInputs(
            embedded_BTD=graph.input(EMBEDDED, torch.float32, [*size, exported.shape.width]),
            visible_BT=graph.input(VISIBLE, torch.bool, size),
            types_BT=graph.input(TYPES, torch.int64, size) if exported.shape.family.segments else None,
        )
        outputs = exported.add_nodes(graph, inputs, precision)
        draft.tensors(part, graph.parts[part])
        graph.save(draft.folder / body_file(precision), outputs, exported.metadata)
