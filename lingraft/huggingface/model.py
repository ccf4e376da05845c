"""A model of ours as transformers has it: settings and tensors. Pure: a net in, dictionaries out.

Legend: T positions, S segments, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape, PreNorm
from lingraft.huggingface.weights import TENSOR_NAMINGS, to_checkpoint
from lingraft.model.encoder import INITIAL_STD, Encoder
from lingraft.tasks.classification import Classifier
from lingraft.tasks.question_answering import SpanExtractor
from lingraft.tasks.retrieval import TextEmbedder
from lingraft.tasks.tagging import Tagger

_CLASSES = {
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "bert": "Bert",
    "modernbert": "ModernBert",
}
SENTENCE_TRANSFORMER = "SentenceTransformer"
"""Class of sentence-transformers that loads an embedding model."""
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu"}


@dataclass(frozen=True)
class HfClass:
    """Class of transformers for a net of ours."""

    suffix: str
    """End of the class's name, behind that of the model type or AutoModel; empty for the encoder alone."""
    pipeline: str
    """The pipeline that it serves, by the hub's name."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Our modules of the head, and theirs."""
    in_model_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Modules of model types that have others."""

    def modules_of(self, model_type: str) -> Mapping[str, str]:
        """Return our modules of the head, and theirs in a model type."""
        return self.in_model_types.get(model_type, self.modules)

    @property
    def auto_class(self) -> str:
        """Name of the class of transformers that loads it, or the encoder of an embedding model."""
        return f"AutoModel{self.suffix}"

    @property
    def loader(self) -> str:
        """Name of the class that loads all of it."""
        return self.auto_class if self.suffix else SENTENCE_TRANSFORMER


_MODERNBERT_HEAD = {"dense": "head.dense", "norm": "head.norm", "out": "classifier"}
_IN_MODERNBERT = {"modernbert": _MODERNBERT_HEAD}
_FORMS: dict[type[nn.Module], HfClass] = {
    Encoder: HfClass("ForMaskedLM", "fill-mask"),
    Classifier: HfClass(
        "ForSequenceClassification",
        "text-classification",
        {"dense": "classifier.dense", "out": "classifier.out_proj"},
        {"bert": {"dense": "bert.pooler.dense", "out": "classifier"}, "modernbert": _MODERNBERT_HEAD},
    ),
    SpanExtractor: HfClass("ForQuestionAnswering", "question-answering", {"out": "qa_outputs"}, _IN_MODERNBERT),
    Tagger: HfClass("ForTokenClassification", "token-classification", {"out": "classifier"}, _IN_MODERNBERT),
    TextEmbedder: HfClass("", "sentence-similarity"),
}


def hf_class_of(net: nn.Module) -> HfClass:
    """Return the class of transformers for an encoder with its MLM heads, or for a task's net."""
    return _FORMS[type(net)]


def own_model_type(shape: EncoderShape) -> str:
    """Return the model type that a primary of our own is exported as.

    RoBERTa's architecture goes by several names, but tools that go by the name expect SentencePiece's pieces of an
    'xlm-roberta', as ours are, and byte-level BPE of a 'roberta'.
    """
    return "modernbert" if shape.family.pre_norm else "xlm-roberta"


def encoder_of(net: nn.Module) -> Encoder:
    """Return the encoder that a net is, or that it has its head on."""
    found = net if isinstance(net, Encoder) else net.encoder
    assert isinstance(found, Encoder)
    return found


def hf_config(net: nn.Module, model_type: str, labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return the content of `config.json`."""
    encoder = encoder_of(net)
    shape, special = encoder.shape, encoder.vocabulary.special
    config: dict[str, Any] = {
        "architectures": [_CLASSES[model_type] + (hf_class_of(net).suffix or "Model")],
        "model_type": model_type,
        "vocab_size": len(encoder.vocabulary),
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.attention_heads,
        "intermediate_size": shape.feedforward_width,
        "initializer_range": INITIAL_STD,
        "bos_token_id": special.begin,
        "pad_token_id": special.pad,
        "eos_token_id": special.end,
        "tie_word_embeddings": True,
    }
    pre_norm = shape.family.pre_norm
    config |= _modernbert_config(encoder, pre_norm) if pre_norm else _post_norm_config(encoder, model_type)
    if labels:
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    return config


def _post_norm_config(encoder: Encoder, model_type: str) -> dict[str, Any]:
    shape = encoder.shape
    return {
        "hidden_act": _ACTIVATIONS[shape.family.activation],
        "hidden_dropout_prob": shape.dropout,
        "attention_probs_dropout_prob": shape.dropout,
        "max_position_embeddings": _first_position(encoder, model_type) + shape.block_tokens,
        "type_vocab_size": max(1, shape.family.segments),
        "layer_norm_eps": shape.family.layer_norm_eps,
    }


def _modernbert_config(encoder: Encoder, pre_norm: PreNorm) -> dict[str, Any]:
    """Return the settings under the names that transformers 4.48, the first version with ModernBERT, reads as well."""
    shape, special = encoder.shape, encoder.vocabulary.special
    return {
        "hidden_activation": _ACTIVATIONS[shape.family.activation],
        "classifier_activation": _ACTIVATIONS[shape.family.head_activation],
        "embedding_dropout": shape.dropout,
        "attention_dropout": shape.dropout,
        "mlp_dropout": shape.dropout,
        "max_position_embeddings": shape.block_tokens,
        "norm_eps": shape.family.layer_norm_eps,
        "norm_bias": pre_norm.norm_bias,
        "attention_bias": pre_norm.attention_bias,
        "mlp_bias": pre_norm.feedforward_bias,
        "classifier_bias": pre_norm.head_bias,
        "classifier_dropout": shape.dropout,
        "classifier_pooling": "mean" if shape.pools_mean else "cls",
        "global_attn_every_n_layers": pre_norm.global_every,
        "local_attention": pre_norm.local_tokens,
        "global_rope_theta": pre_norm.global_base,
        "local_rope_theta": pre_norm.local_base,
        "cls_token_id": special.begin,
        "sep_token_id": special.end,
    }


def hf_tensors(net: nn.Module, model_type: str) -> dict[str, Tensor]:
    """Return the tensors of `model.safetensors`, tied ones once."""
    encoder = encoder_of(net)
    form = hf_class_of(net)
    shape = encoder.shape
    body = TENSOR_NAMINGS[model_type].body
    head = shape.layers if encoder is net else None
    table_VD, bias_V = encoder.vocabulary.whole()
    ours = encoder.state_dict() | {"vocabulary.table_VD": table_VD, "vocabulary.bias_V": bias_V}
    if not shape.family.pre_norm:
        ours |= {"positions_TD": _positions(encoder, model_type)}
    theirs = to_checkpoint(ours, shape, model_type, head)
    if not shape.family.pre_norm and not shape.family.segments:
        theirs[f"{body}.embeddings.token_type_embeddings.weight"] = torch.zeros(1, shape.width)
    names = form.modules_of(model_type)
    parts = [(*ours.rpartition("."), tensor) for ours, tensor in net.state_dict().items()]
    theirs |= {f"{names[module]}.{kind}": tensor for module, _, kind, tensor in parts if module in names}
    if not form.suffix:
        theirs = {name.removeprefix(f"{body}."): tensor for name, tensor in theirs.items()}
    if not form.suffix and not shape.family.pre_norm:
        # Nothing reads the pooler, but transformers would draw it at random and warn of it.
        theirs |= {"pooler.dense.weight": torch.zeros(shape.width, shape.width)}
        theirs |= {"pooler.dense.bias": torch.zeros(shape.width)}
    return {name: tensor.detach().contiguous().clone() for name, tensor in theirs.items()}


def _first_position(encoder: Encoder, model_type: str) -> int:
    """Row of the position table that transformers takes for the first token: RoBERTa counts from behind the pad id."""
    return 0 if model_type == "bert" else encoder.vocabulary.special.pad + 1


def _positions(encoder: Encoder, model_type: str) -> Tensor:
    """The position table with its first used row where transformers looks for it.

    A language that is brought to an imported primary may have another pad id than the primary's own.
    """
    own = encoder.shape.family.position_offset
    theirs = _first_position(encoder, model_type)
    positions_TD = encoder.positions_TD.detach()
    if own == theirs:
        return positions_TD
    return torch.cat([positions_TD.new_zeros(theirs, positions_TD.shape[1]), positions_TD[own:]])
