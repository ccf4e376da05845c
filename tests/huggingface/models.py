"""Artifacts of large random weights around any primary: embeddings of a language, and a task of each kind.

Nothing here is trained: what is computed differs plainly from row to row, so that a tensor left out or misplaced shows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import Task, TaskFile
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder
from lingraft.tasks.kinds import kind_of
from tests.tiny import save_embeddings, save_finetuned, save_primary

LABELS = {
    "texts": ["calm", "rough", "wild"],
    "pairs": ["different", "same"],
    "questions": [],
    "tags": ["B-X", "I-X", "O"],
    "retrieval": [],
}
"""By the task's kind."""
LANGUAGE = "xx"


def write_own_primary(shape: EncoderShape, tokenizer: Tokenizer, out: Path) -> Path:
    """A primary of our own, with a tokenizer of our own."""
    encoder = Encoder(shape, len(tokenizer))
    draw(encoder, seed=1)
    return save_primary(encoder, tokenizer, out)


def write_language(primary: Path, tokenizer: Tokenizer, out: Path) -> Path:
    """Embeddings that belong to a primary, for a tokenizer of our own."""
    return save_embeddings(tokenizer, primary, out, lambda vocabulary: draw(vocabulary, seed=2))


def write_task_of(kind: str, primary: Path, out: Path, labels: Sequence[str] | None = None, **more: Any) -> Path:
    """A finetuned task of a kind that belongs to a primary."""
    shape = Artifact.load(primary, Kind.PRIMARY).manifest.detail("shape", EncoderShape)
    files = dict.fromkeys(("train", "dev", "test"), TaskFile(kind="file", path="{language}.tsv"))
    settings = Task.model_validate({"name": f"some-{kind}", "kind": kind, **files, **more})
    names = LABELS[kind] if labels is None else list(labels)
    net = kind_of(settings).net(Encoder(shape, 0), names)
    draw(net, seed=3)
    return save_finetuned(net, settings, names, primary, out)


@torch.no_grad()
def draw(module: torch.nn.Module, seed: int) -> None:
    """Draw all parameters of a module anew, scales of LayerNorms around 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        parameter.normal_(mean=1.0 if "norm.weight" in name else 0.0, std=0.2, generator=generator)
