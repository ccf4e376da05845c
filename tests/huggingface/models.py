"""Artifacts of large random weights around any primary: embeddings of a language, and a task of each kind.

Nothing here is trained: what is computed differs plainly from row to row, so that a tensor left out or misplaced shows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import Task, TaskFile
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, Vocabulary
from lingraft.model.loading import save_vocabulary
from lingraft.tasks.finetuned import save_task
from lingraft.tasks.kinds import kind_of

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
    encoder = drawn(Encoder(shape, len(tokenizer)), seed=1)
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.tensors("body", encoder.body_tensors())
        save_vocabulary(draft, encoder.vocabulary, tokenizer)
        facts = {"shape": shape.model_dump(mode="json"), "special_ids": tokenizer.special._asdict()}
        draft.facts = {"language": tokenizer.language, "tokenizer_hash": tokenizer.hash, "details": facts}
    return out


def write_language(primary: Path, tokenizer: Tokenizer, out: Path) -> Path:
    """Embeddings that belong to a primary, for a tokenizer of our own."""
    body = Artifact.load(primary, Kind.PRIMARY)
    vocabulary = drawn(Vocabulary(len(tokenizer), body.manifest.details["shape"]["width"]), seed=2)
    with artifact.create(out, Kind.EMBEDDINGS) as draft:
        save_vocabulary(draft, vocabulary, tokenizer)
        draft.facts = {
            "language": LANGUAGE,
            "tokenizer_hash": tokenizer.hash,
            "aligned_with": body.fingerprint,
            "details": {"special_ids": tokenizer.special._asdict()},
        }
    return out


def write_task_of(kind: str, primary: Path, out: Path, labels: Sequence[str] | None = None, **more: Any) -> Path:
    """A finetuned task of a kind that belongs to a primary."""
    body = Artifact.load(primary, Kind.PRIMARY)
    shape = EncoderShape(**body.manifest.details["shape"])
    files = dict.fromkeys(("train", "dev", "test"), TaskFile(kind="file", path="{language}.tsv"))
    settings = Task.model_validate({"name": f"some-{kind}", "kind": kind, **files, **more})
    names = LABELS[kind] if labels is None else list(labels)
    net = drawn(kind_of(settings).net(Encoder(shape, 0), names), seed=3)
    with artifact.create(out, Kind.TASK) as draft:
        save_task(draft, net)
        details = {"task": settings.name, "settings": settings.model_dump(mode="json"), "labels": names, "seed": 1}
        draft.facts = {
            "language": str(body.manifest.language),
            "aligned_with": body.fingerprint,
            "details": details | {"shape": shape.model_dump(mode="json")},
        }
    return out


@torch.no_grad()
def drawn(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The module with all its parameters drawn anew, scales of LayerNorms around 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        parameter.normal_(mean=1.0 if "norm.weight" in name else 0.0, std=0.2, generator=generator)
    return module
