"""A Hugging Face configuration, read as our encoder's shape: dictionary in, shape out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pydantic

from lingraft.config.encoder import EncoderShape, PreNorm
from lingraft.config.section import explain_problem
from lingraft.huggingface.weights import TENSOR_NAMINGS, CheckpointError

_MODERNBERT = "modernbert"
_SHAPE_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_READ_KEYS = (
    *_SHAPE_KEYS, "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings",
    "type_vocab_size", "layer_norm_eps", "pad_token_id", "tie_word_embeddings",
)  # fmt: skip
"""Keys that decide what an encoder computes; old configurations leave some of them out."""
_MODERNBERT_KEYS = (
    *_SHAPE_KEYS, "hidden_activation", "embedding_dropout", "attention_dropout", "mlp_dropout",
    "max_position_embeddings", "local_attention", "attention_bias", "mlp_bias", "norm_eps", "norm_bias",
    "classifier_activation", "classifier_bias", "classifier_pooling", "decoder_bias", "tie_word_embeddings",
)  # fmt: skip
"""Keys of ModernBERT that do so, beside `layer_types` and the bases of rotary positions."""
_SUPPORTED_VALUES = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "quantization_config": None,
}
"""The one value of a key for which our encoder computes the same."""
_IGNORED_BY_MODERNBERT = {"position_embedding_type"}
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
_DROPOUTS = (
    ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    ("mlp_dropout", "attention_dropout", "embedding_dropout"),
)
"""Keys of dropouts of post-norm encoders and of ModernBERT; the first counts."""
_POOLINGS = {"cls": "first", "mean": "mean"}


class HfConfig(NamedTuple):
    """A configuration as our encoder reads it."""

    model_type: str
    shape: EncoderShape
    vocabulary: int
    """Rows of the token table."""
    tied: bool
    has_output_bias: bool
    notes: list[str]
    """Choices to be shown."""


def parse_config(config: Mapping[str, Any]) -> HfConfig:
    """Read a config.json of transformers."""
    model_type = config.get("model_type")
    if model_type not in TENSOR_NAMINGS:
        raise CheckpointError(
            f"the checkpoint's model_type is {model_type!r}; a primary can be made from {', '.join(TENSOR_NAMINGS)}. "
            "Take a masked language model of one of these."
        )
    for key, only in _SUPPORTED_VALUES.items():
        if model_type == _MODERNBERT and key in _IGNORED_BY_MODERNBERT:
            continue
        if config.get(key, only) != only:
            raise CheckpointError(
                f"config.json has {key} = {config[key]!r}; only {only!r} computes what our encoder computes. "
                "Take a plain masked language model, without it."
            )
    defaults = _defaults(model_type)
    read = {**defaults, **config}
    if model_type == "bert" and read["pad_token_id"] is None:  # what BERT computes does not depend on it
        read["pad_token_id"] = defaults["pad_token_id"]
    _require_types(read, defaults)
    family = _modernbert_family(read) if model_type == _MODERNBERT else _post_norm_family(model_type, read)
    kept, *dropouts = _DROPOUTS[model_type == _MODERNBERT]
    others = [f"{key} {read[key]}" for key in dropouts if read[key] != read[kept]]
    note = f"dropout {read[kept]} is kept for all of the encoder; {', '.join(others)} is not"
    shape = {
        "width": read["hidden_size"],
        "layers": read["num_hidden_layers"],
        "attention_heads": read["num_attention_heads"],
        "mlm_heads": (read["num_hidden_layers"],),
        "block_tokens": read["max_position_embeddings"] - family["position_offset"],
        "feedforward": read["intermediate_size"],
        "dropout": read[kept],
        "family": family,
    }
    return HfConfig(
        model_type=model_type,
        shape=_validated(shape),
        vocabulary=read["vocab_size"],
        tied=read["tie_word_embeddings"],
        has_output_bias=read.get("decoder_bias", True),
        notes=[note] if others else [],
    )


def _defaults(model_type: str) -> dict[str, Any]:
    """Return the values that transformers takes for keys that a config.json leaves out."""
    from transformers import CONFIG_MAPPING

    values = CONFIG_MAPPING[model_type]().to_dict()
    return {key: values[key] for key in (_MODERNBERT_KEYS if model_type == _MODERNBERT else _READ_KEYS)}


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


def _named(key: str, read: Mapping[str, Any], ours: Mapping[str, str]) -> str:
    """Our name of a choice that theirs has a name for."""
    if read[key] not in ours:
        raise CheckpointError(
            f"config.json has {key} = {read[key]!r}; our encoder has {', '.join(ours)}. "
            "Take a checkpoint with one of these."
        )
    return ours[read[key]]


def _post_norm_family(model_type: str, read: Mapping[str, Any]) -> dict[str, Any]:
    activation = _named("hidden_act", read, _ACTIVATIONS)
    is_bert = model_type == "bert"
    offset = 0 if is_bert else read["pad_token_id"] + 1  # RoBERTa counts positions from behind the pad id
    return {
        "position_offset": offset,
        "segments": read["type_vocab_size"],
        "separators": 1 if is_bert else 2,
        "layer_norm_eps": read["layer_norm_eps"],
        "activation": activation,
        "head_activation": activation if is_bert else "gelu",
    }


def _modernbert_family(read: Mapping[str, Any]) -> dict[str, Any]:
    pre_norm = {
        "global_every": _global_every(read),
        "local_tokens": read["local_attention"],
        **_rotary_bases(read),
        "attention_bias": read["attention_bias"],
        "feedforward_bias": read["mlp_bias"],
        "norm_bias": read["norm_bias"],
        "head_bias": read["classifier_bias"],
        "pooling": _named("classifier_pooling", read, _POOLINGS),
    }
    return {
        "position_offset": 0,
        "separators": 1,
        "layer_norm_eps": read["norm_eps"],
        "activation": _named("hidden_activation", read, _ACTIVATIONS),
        "head_activation": _named("classifier_activation", read, _ACTIVATIONS),
        "pre_norm": pre_norm,
    }


def _global_every(read: Mapping[str, Any]) -> Any:
    """Every how many layers attention is global: the newer key lists all layers, the older one is the number."""
    kinds = read.get("layer_types")
    if kinds is None:
        every = read.get("global_attn_every_n_layers", PreNorm().global_every)
        return _typed("global_attn_every_n_layers", every, int)
    layers = read["num_hidden_layers"]
    if len(_typed("layer_types", kinds, list)) != layers:
        raise CheckpointError(
            f"config.json has {len(kinds)} layer_types, but num_hidden_layers is {layers}. Correct it there."
        )
    later = (number for number, kind in enumerate(kinds) if number and kind == "full_attention")
    every = next(later, len(kinds))
    if kinds != ["sliding_attention" if number % every else "full_attention" for number in range(len(kinds))]:
        raise CheckpointError(
            f"config.json has layer_types = {kinds}; our encoder has global attention in the first layer and in every "
            "so many behind it. Take a checkpoint with layers in such an order."
        )
    return every


def _rotary_bases(read: Mapping[str, Any]) -> dict[str, Any]:
    """Bases of rotary positions: the newer key has a table for each kind of attention, the older ones numbers."""
    named = _typed("rope_parameters", read.get("rope_parameters") or {}, dict)
    defaults, bases = PreNorm(), dict[str, Any]()
    for ours, theirs in (("global", "full_attention"), ("local", "sliding_attention")):
        table = _typed(f"rope_parameters.{theirs}", named.get(theirs) or {}, dict)
        if read.get("rope_scaling") or table.get("rope_type", "default") != "default":
            raise CheckpointError(
                f"config.json scales rotary positions ({read.get('rope_scaling') or table}), which our encoder does "
                "not. Take a checkpoint without rope scaling."
            )
        default = getattr(defaults, f"{ours}_base")
        bases[f"{ours}_base"] = table.get("rope_theta", read.get(f"{ours}_rope_theta", default))
    return bases


def _typed(key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CheckpointError(f"config.json has {key} = {value!r}, which is no {kind.__name__}. Correct it there.")
    return value


def _validated(shape: dict[str, Any]) -> EncoderShape:
    try:
        return EncoderShape.model_validate(shape)
    except pydantic.ValidationError as error:
        lines = [explain_problem(EncoderShape, problem) for problem in error.errors()]
        raise CheckpointError("config.json is not usable, by our names:\n  " + "\n  ".join(lines)) from error
