"""Small things that tests of tasks need: a tokenizer, shapes of both families, an encoder of large random weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lingraft.config.encoder import EncoderShape, Family
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.unigram import train_unigram
from lingraft.model.encoder import Encoder
from lingraft.tasks.task_kind import Prepared
from lingraft.training.batches import task_stream
from tests.made_up import documents

VOCABULARY = 120
ROBERTA = Family()
BERT = Family(position_offset=0, segments=2, separators=1, layer_norm_eps=1e-12)


def lines(language: str = "en", count: int = 100) -> list[str]:
    """Made-up text."""
    return [line for document in documents(language, count) for line in document["text"].splitlines()]


def own_tokenizer(folder: Path) -> Tokenizer:
    """A tokenizer with our special tokens."""
    path = folder / "tokenizer.json"
    train_unigram(lines(), VOCABULARY, 0.9995).write(path)
    return Tokenizer.from_file(path, "en")


def shape(family: Family = ROBERTA, block_tokens: int = 24, dropout: float = 0.0) -> EncoderShape:
    """One layer of width 32."""
    return EncoderShape(
        width=32,
        layers=1,
        attention_heads=2,
        mlm_heads=(1,),
        block_tokens=block_tokens,
        dropout=dropout,
        family=family,
    )


def encoder(of: EncoderShape) -> Encoder:
    """All weights are large, so that outputs differ plainly from row to row."""
    found = Encoder(of, VOCABULARY)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.normal_(std=0.5, generator=generator)
    return found


def drawn(data: Prepared, batch_examples: int, steps: int) -> Iterator[Any]:
    """What the first steps of a finetuning see."""
    stream = task_stream(data, batch_examples, seed=1)
    for step in range(1, steps + 1):
        for _, batch in stream(step):
            yield batch
