"""A checkpoint of transformers and our encoder with its weights, and the logits of both."""

from typing import Any

import torch
from torch import Tensor

from lingraft.huggingface.config import parse_config
from lingraft.huggingface.weights import ConvertedWeights, from_checkpoint
from lingraft.model.encoder import Encoder
from tests.huggingface.checkpoints import make_model


def made(model_type: str, **settings: Any) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """A model of transformers, its tensors and its configuration; an untied projection holds the table's values."""
    model = make_model(model_type, **settings)
    if not model.config.tie_word_embeddings:
        with torch.no_grad():
            model.get_output_embeddings().weight.copy_(model.get_input_embeddings().weight)
    return model, dict(model.state_dict()), model.config.to_dict()


def converted(tensors: dict[str, Tensor], config: dict[str, Any]) -> ConvertedWeights:
    read = parse_config(config)
    return from_checkpoint(tensors, read.shape, read.model_type, read.vocabulary, read.tied, read.has_output_bias)


def encoder_of(tensors: dict[str, Tensor], config: dict[str, Any]) -> Encoder:
    encoder = Encoder(parse_config(config).shape, config["vocab_size"])
    encoder.load_state_dict(converted(tensors, config).tensors)
    return encoder.eval()


@torch.no_grad()
def our_logits(encoder: Encoder, tokens_BT: Tensor, visible_BT: Tensor | None = None) -> Tensor:
    """Logits (B, T, V) at every place."""
    places, depth = torch.arange(tokens_BT.numel()), encoder.shape.layers
    return encoder.masked_logits(tokens_BT, places, (depth,), visible_BT)[depth].view(*tokens_BT.shape, -1)
