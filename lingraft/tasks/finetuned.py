"""A finetuned task as an artifact: saved, loaded, and combined with a language's embeddings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lingraft.artifacts.artifact import Artifact, Draft, require_aligned
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import Retrieval, Task
from lingraft.errors import ArtifactError
from lingraft.model.encoder import Encoder
from lingraft.model.loading import Embeddings, LoadedPrimary, load_tensors
from lingraft.model.swap import swap
from lingraft.tasks.kinds import kind_of
from lingraft.tasks.task_kind import TaskKind

RETRIEVAL = "retrieval"
"""Detail of an imported primary: pooling and layers of the embedding model that it is, unless these have weights."""
EMBEDDINGS = "embeddings"
"""Name of the task that an embedding model is by itself."""


@dataclass(frozen=True)
class TaskModel:
    """A body finetuned in the source language, without a vocabulary until one is swapped in."""

    net: Any
    """A `lingraft.tasks.task_kind.TaskNet`."""
    settings: Task
    kind: TaskKind
    labels: list[str]
    aligned_with: str
    fingerprint: str
    manifest: Manifest
    folder: Path

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.settings.name

    @property
    def seed(self) -> int:
        """Seed that it was finetuned with."""
        return int(self.manifest.detail("seed", int))

    @property
    def shape(self) -> EncoderShape:
        """Shape of the body."""
        return self.net.encoder.shape

    def swap_in(self, language: Embeddings | LoadedPrimary) -> None:
        """Put a language's embeddings, or the source's own from its primary, under the body, in place."""
        if isinstance(language, LoadedPrimary):
            require_aligned("the task", self.aligned_with, language.fingerprint, "Finetune the task again")
            swap(self.net.encoder, language.encoder.vocabulary)
        else:
            require_aligned(f"embeddings of {language.language!r}", language.aligned_with, self.aligned_with)
            language.require_whole()
            swap(self.net.encoder, language.vocabulary)


def own_task(primary: LoadedPrimary) -> TaskModel | None:
    """Return the task that an embedding model without an MLM head is by itself; None for other primaries."""
    manifest = primary.manifest
    if RETRIEVAL not in manifest.details or primary.encoder.depths:
        return None
    settings = Task(name=EMBEDDINGS, kind="retrieval", retrieval=manifest.detail(RETRIEVAL, Retrieval))
    kind = kind_of(settings)
    return TaskModel(
        net=kind.net(primary.encoder, []),
        settings=settings,
        kind=kind,
        labels=[],
        aligned_with=primary.fingerprint,
        fingerprint=primary.fingerprint,
        manifest=manifest,
        folder=Path(),
    )


def save_task(draft: Draft, net: nn.Module) -> None:
    """Put a finetuned body and its head into an artifact, without vocabulary and MLM heads."""
    state = net.state_dict()
    body = {name.removeprefix("encoder."): tensor for name, tensor in state.items() if name.startswith("encoder.")}
    draft.tensors("body", {name: t for name, t in body.items() if not name.startswith(("vocabulary.", "heads."))})
    draft.tensors("head", {name: tensor for name, tensor in state.items() if not name.startswith("encoder.")})


def load_task(folder: Path) -> TaskModel:
    """Open a finetuned task."""
    artifact = Artifact.load(folder, Kind.TASK)
    manifest = artifact.manifest
    settings: Task = manifest.detail("settings", Task)
    labels: list[str] = manifest.detail("labels", list[str])
    if not labels and settings.has_labels:
        raise ArtifactError(
            f"{folder} is a task of kind {settings.kind!r} without labels: its manifest is damaged. Make the task "
            "again, or fetch it anew."
        )
    kind, encoder = kind_of(settings), Encoder(manifest.detail("shape", EncoderShape), 0)
    net = kind.net(encoder, labels)
    load_tensors(net, artifact, "head", elsewhere=("encoder.",))
    load_tensors(encoder, artifact, "body", elsewhere=("vocabulary.", "heads."))
    return TaskModel(
        net=net,
        settings=settings,
        kind=kind,
        labels=labels,
        aligned_with=str(manifest.aligned_with),
        fingerprint=artifact.fingerprint,
        manifest=manifest,
        folder=folder,
    )
