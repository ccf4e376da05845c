"""Small random embedding models, saved by sentence-transformers itself, with modules in many orders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from tests.huggingface.checkpoints import make_checkpoint

WIDTH = 32


def make_embedding_model(
    folder: Path,
    model_type: str = "bert",
    modules: Sequence[nn.Module] = (),
    pooling: Any = "mean",
    prompts: Mapping[str, str] | None = None,
    default_prompt: str | None = None,
    longest: int | None = None,
    similarity: Any = None,
    **settings: Any,
) -> SentenceTransformer:
    """Save a model whose encoder is a random checkpoint's, under a pooling and further modules."""
    body = make_checkpoint(folder / "masked-lm", model_type, **settings).folder
    transformer = Transformer(str(body), max_seq_length=longest)
    parts = [transformer, Pooling(WIDTH, pooling_mode=pooling), *modules]
    made = SentenceTransformer(
        modules=parts,
        prompts=dict(prompts or {}),
        default_prompt_name=default_prompt,
        similarity_fn_name=similarity,
        device="cpu",
    )
    made.save(str(folder / "model"), create_model_card=False)
    return made.eval()


def dense(out: int, activation: nn.Module | None = None, width: int = WIDTH, bias: bool = True) -> Dense:
    """A dense module of large random weights."""
    made = Dense(width, out, bias=bias, activation_function=activation or nn.Identity())
    generator = torch.Generator().manual_seed(out)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return made
