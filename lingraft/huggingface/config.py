"""A Hugging Face configuration of RoBERTa's family, read as our encoder's shape: dictionary in, shape out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pydantic

from lingraft.config.encoder import EncoderShape
from lingraft.config.section import explain_problem
from lingraft.errors import MissingExtraError
from lingraft.huggingface.weights import TENSOR_NAMINGS, CheckpointError

_READ_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
    "pad_token_id",
    "tie_word_embeddings",
)
"""Keys that decide what an encoder computes; old configurations leave some of them out."""
_SUPPORTED_VALUES = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "quantization_config": None,
}
"""The one value of a key for which our encoder computes the same."""
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu": "relu",
}
_KEYS = {
    "recipe": "config.json",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "attention_heads": "num_attention_heads",
    "feedforward": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "block_tokens": "max_position_embeddings (less the positions before the first token's)",
    "family.segments": "type_vocab_size",
    "family.layer_norm_eps": "layer_norm_eps",
    "family.position_offset": "pad_token_id",
}
"""Our settings and the keys of theirs that they come from."""


class HfConfig(NamedTuple):
    """A configuration as our encoder reads it."""

    model_type: str
    shape: EncoderShape
    vocabulary: int
    """Rows of the token table."""
    tied: bool
    notes: list[str]
    """Choices to be shown."""


def parse_config(config: Mapping[str, Any]) -> HfConfig:
    """Read a config.json of transformers.

    Raises:
        CheckpointError: an architecture that `TENSOR_NAMINGS` lacks, or a variant or value that we do not compute.
        MissingExtraError: transformers, whose defaults count, is not installed.
    """
    model_type = config.get("model_type")
    if model_type not in TENSOR_NAMINGS:
        raise CheckpointError(
            f"the checkpoint's model_type is {model_type!r}; a primary can be made from {', '.join(TENSOR_NAMINGS)}. "
            "Take a masked language model of one of these."
        )
    for key, only in _SUPPORTED_VALUES.items():
        if config.get(key, only) != only:
            raise CheckpointError(
                f"config.json has {key} = {config[key]!r}; only {only!r} computes what our encoder computes. "
                "Take a plain masked language model, without it."
            )
    defaults = _defaults(model_type)
    read = {**defaults, **config}
    _require_types(read, defaults)
    hidden, attention = read["hidden_dropout_prob"], read["attention_probs_dropout_prob"]
    note = f"dropout {hidden} is kept for all of the encoder; attention_probs_dropout_prob {attention} is not"
    notes = [] if hidden == attention else [note]
    return HfConfig(model_type, _shape(model_type, read), read["vocab_size"], read["tie_word_embeddings"], notes)


def _defaults(model_type: str) -> dict[str, Any]:
    """Return the values that transformers takes for keys that a config.json leaves out."""
    try:
        from transformers import CONFIG_MAPPING
    except ModuleNotFoundError as error:
        raise MissingExtraError("transformers", "huggingface") from error
    values = CONFIG_MAPPING[model_type]().to_dict()
    return {key: values[key] for key in _READ_KEYS}


def _require_types(read: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse what would go wrong below; the shape's own rules look at the rest."""
    wrong = [
        f"{key} = {read[key]!r}"
        for key, default in defaults.items()
        if isinstance(read[key], bool) is not isinstance(default, bool)
        or not isinstance(read[key], (int, float) if isinstance(default, float) else type(default))
        or (key in ("vocab_size", "type_vocab_size") and read[key] < 1)
    ]
    if wrong:
        raise CheckpointError(
            f"config.json has {', '.join(wrong)}, with which transformers itself cannot compute. Correct it there."
        )


def _shape(model_type: str, read: Mapping[str, Any]) -> EncoderShape:
    if read["hidden_act"] not in _ACTIVATIONS:
        raise CheckpointError(
            f"config.json has hidden_act = {read['hidden_act']!r}; our encoder has {', '.join(_ACTIVATIONS)}. "
            "Take a checkpoint with one of these."
        )
    activation = _ACTIVATIONS[read["hidden_act"]]
    is_bert = model_type == "bert"
    offset = 0 if is_bert else read["pad_token_id"] + 1  # RoBERTa counts positions from behind the pad id
    family = {
        "position_offset": offset,
        "segments": read["type_vocab_size"],
        "separators": 1 if is_bert else 2,
        "layer_norm_eps": read["layer_norm_eps"],
        "activation": activation,
        "head_activation": activation if is_bert else "gelu",
    }
    shape = {
        "width": read["hidden_size"],
        "layers": read["num_hidden_layers"],
        "attention_heads": read["num_attention_heads"],
        "mlm_heads": (read["num_hidden_layers"],),
        "block_tokens": read["max_position_embeddings"] - offset,
        "feedforward": read["intermediate_size"],
        "dropout": read["hidden_dropout_prob"],
        "family": family,
    }
    try:
        return EncoderShape.model_validate(shape)
    except pydantic.ValidationError as error:
        lines = [_explained(problem) for problem in error.errors()]
        raise CheckpointError("config.json is not usable:\n  " + "\n  ".join(lines)) from error


def _explained(problem: Any) -> str:
    line = explain_problem(EncoderShape, problem)
    key, _, rest = line.partition(":")
    return f"{_KEYS.get(key, key)}:{rest}"
