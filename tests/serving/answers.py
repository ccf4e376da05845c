"""What PyTorch says to a text, to hold the bundle's and the server's answers to."""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings, load_primary
from lingraft.serving.bundle import Bundle
from lingraft.tasks.finetuned import TaskModel, load_task
from lingraft.tasks.pairs import encode, pad
from tests.made_up import documents
from tests.tiny import Tiny

LANGUAGES = ("en", "de", "tr")


def sentences(language: str, words: tuple[int, ...] = (1, 3, 5)) -> list[str]:
    texts = [document["text"].split() for document in documents(language, len(words))]
    return [" ".join(text[:count]) for text, count in zip(texts, words, strict=True)]


def rows_of(tiny: Tiny, language: str, texts: list[str]) -> list[list[int]]:
    shape = speaking(tiny, tiny.task, language).shape
    return encode([(text,) for text in texts], brought(tiny, language).tokenizer, shape).rows


@torch.inference_mode()
def pytorch_logits(tiny: Tiny, language: str, rows: list[list[int]]) -> Tensor:
    logits_BC: Tensor = speaking(tiny, tiny.task, language).net(*pad(rows, DEFAULT_SPECIAL_IDS.pad))
    return logits_BC


def brought(tiny: Tiny, language: str) -> LoadedPrimary | Embeddings:
    """A language's embeddings, or the primary that has them; tests leave it as it is."""
    return _embeddings(tiny.embeddings[language]) if language in tiny.embeddings else _primary(tiny.primary)


def speaking(tiny: Tiny, task: Path, language: str) -> TaskModel:
    """A task in PyTorch, with a language's embeddings in it; tests leave it as it is."""
    return _speaking(task, tiny.embeddings.get(language), tiny.primary)


@cache
def _embeddings(folder: Path) -> Embeddings:
    return load_embeddings(folder)


@cache
def _primary(folder: Path) -> LoadedPrimary:
    return load_primary(folder)


@cache
def _speaking(task: Path, embeddings: Path | None, primary: Path) -> TaskModel:
    found = load_task(task)
    found.swap_in(_embeddings(embeddings) if embeddings else _primary(primary))
    found.net.eval()
    return found


def onnx_logits(opened: Bundle, language: str, rows: list[list[int]]) -> Tensor:
    (logits,) = opened.body.run(*opened.gather([(language, ids) for ids in rows])).values()
    return torch.from_numpy(logits)
