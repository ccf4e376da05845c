"""What PyTorch says to a text, to hold the bundle's and the server's answers to."""

import torch
from torch import Tensor

from lingraft.models import load_embeddings, load_primary, load_task
from lingraft.serving.bundle import Bundle
from lingraft.tasks.pairs import encode, pad
from lingraft.tokenizer import OWN_IDS
from tests.made_up import documents
from tests.tiny import Tiny

LANGUAGES = ("en", "de", "tr")


def sentences(language: str, words: tuple[int, ...] = (1, 3, 5)) -> list[str]:
    """The first words of made-up documents: short enough for a block."""
    texts = [document["text"].split() for document in documents(language, len(words))]
    return [" ".join(text[:count]) for text, count in zip(texts, words, strict=True)]


def rows_of(tiny: Tiny, language: str, texts: list[str]) -> list[list[int]]:
    """Token ids, cut to a block."""
    brought = load_embeddings(tiny.embeddings[language]) if language in tiny.embeddings else load_primary(tiny.primary)
    return encode([(text,) for text in texts], brought.tokenizer, load_task(tiny.task).shape).rows


@torch.inference_mode()
def pytorch_logits(tiny: Tiny, language: str, rows: list[list[int]]) -> Tensor:
    """Logits (B, C) of the task with a language's embeddings swapped in."""
    task = load_task(tiny.task)
    task.swap_in(
        load_embeddings(tiny.embeddings[language]) if language in tiny.embeddings else load_primary(tiny.primary)
    )
    logits_BC: Tensor = task.net.eval()(*pad(rows, OWN_IDS.pad))
    return logits_BC


def onnx_logits(opened: Bundle, language: str, rows: list[list[int]]) -> Tensor:
    """Logits of a bundle, of rows that are all in one language."""
    (logits,) = opened.body.run(*opened.gather([(language, ids) for ids in rows])).values()
    return torch.from_numpy(logits)
