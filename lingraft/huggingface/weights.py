"""Hugging Face checkpoints and our encoder: tensor names, both ways.

Pure functions on dictionaries: no file and no network. RoBERTa's query, key and value projections are one fused matrix
of ours; everything else maps one to one.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.config.encoder import EncoderShape
from lingraft.errors import LingraftError
from lingraft.model.encoder import Encoder


class CheckpointError(LingraftError):
    """A Hugging Face checkpoint is missing, damaged, of another architecture, or not what its configuration says."""


class TensorNaming(NamedTuple):
    """Names of tensors in a family of model types."""

    body: str
    """Prefix of the tensors that are neither of a head nor of the output projection."""
    modules: Mapping[str, tuple[str, ...]]
    """Our modules and theirs, with {} for a number: three of theirs, one below the other, where ours is fused."""
    table: str
    bias: str
    """Output bias."""
    decoder: str
    """Output projection, which may have a `weight` and a `bias`, too."""


def _post_norm(body: str, dense: str, norm: str, output: str) -> TensorNaming:
    embeddings, layer = f"{body}.embeddings", f"{body}.encoder.layer.{{}}"
    modules = {
        "positions_TD": (f"{embeddings}.position_embeddings.weight",),
        "types_SD": (f"{embeddings}.token_type_embeddings.weight",),
        "input_norm": (f"{embeddings}.LayerNorm",),
        "layers.{}.qkv": tuple(f"{layer}.attention.self.{name}" for name in ("query", "key", "value")),
        "layers.{}.attention_out": (f"{layer}.attention.output.dense",),
        "layers.{}.attention_norm": (f"{layer}.attention.output.LayerNorm",),
        "layers.{}.up": (f"{layer}.intermediate.dense",),
        "layers.{}.down": (f"{layer}.output.dense",),
        "layers.{}.output_norm": (f"{layer}.output.LayerNorm",),
        "heads.{}.dense": (dense,),
        "heads.{}.norm": (norm,),
    }
    return TensorNaming(body, modules, f"{embeddings}.word_embeddings.weight", f"{output}.bias", f"{output}.decoder")


_ROBERTA = _post_norm("roberta", "lm_head.dense", "lm_head.layer_norm", "lm_head")
_BERT = _post_norm("bert", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions")
_MODERNBERT = TensorNaming(
    body="model",
    modules={
        "input_norm": ("model.embeddings.norm",),
        "layers.{}.attention_norm": ("model.layers.{}.attn_norm",),
        "layers.{}.qkv": ("model.layers.{}.attn.Wqkv",),
        "layers.{}.attention_out": ("model.layers.{}.attn.Wo",),
        "layers.{}.feedforward_norm": ("model.layers.{}.mlp_norm",),
        "layers.{}.up": ("model.layers.{}.mlp.Wi",),
        "layers.{}.down": ("model.layers.{}.mlp.Wo",),
        "final_norms.{}": ("model.final_norm",),
        "heads.{}.dense": ("head.dense",),
        "heads.{}.norm": ("head.norm",),
    },
    table="model.embeddings.tok_embeddings.weight",
    bias="decoder.bias",
    decoder="decoder",
)
TENSOR_NAMINGS = {
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "bert": _BERT,
    "modernbert": _MODERNBERT,
}
"""Names of tensors by Hugging Face's model type."""

_UNUSED_TENSORS = {
    "{body}.embeddings.position_ids": "a constant",
    "{body}.embeddings.token_type_ids": "a constant",
    "{body}.pooler.dense.weight": "the pooler, which is not used",
    "{body}.pooler.dense.bias": "the pooler, which is not used",
    "cls.seq_relationship.weight": "the head of next-sentence prediction",
    "cls.seq_relationship.bias": "the head of next-sentence prediction",
}
"""Tensors of theirs that we know and do not need, and what they are."""
_NO_HEAD = (
    "there is no MLM head: languages are learned by sentence pairs, or over a mini-model that has one (`lingraft "
    "mini`, system = 'MINIPOST')"
)
_INSIDE = re.compile(r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_BEFORE = {"module", "model"}
"""Names that wrappers of a whole model put into those of its tensors."""
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_FLOATS = {torch.float32, torch.float16, torch.bfloat16}


class ConvertedWeights(NamedTuple):
    """A checkpoint as our encoder has it."""

    tensors: dict[str, Tensor]
    """Tensors by our names, the vocabulary's included, in float32."""
    notes: list[str]
    """Sentences about what was left out, chosen or changed on the way."""


def tensor_names(shape: EncoderShape, model_type: str, head: int | None = None) -> dict[str, tuple[str, ...]]:
    """Return our tensors' names, and theirs for each: three, one below the other, where ours is fused.

    Without `head`, a depth, heads and output bias are left out, as for a task.
    """
    naming, top = TENSOR_NAMINGS[model_type], shape.layers if head is None else head
    names = {"vocabulary.table_VD": (naming.table,)}
    if head is not None:
        names["vocabulary.bias_V"] = (naming.bias,)
    others = [depth for depth in shape.mlm_heads if depth != head]
    left_out = ("vocabulary.", *(f"heads.{depth}." for depth in others))
    left_out += tuple(f"final_norms.{depth}." for depth in others if depth != top)
    ours = [name for name in _meta_encoder(shape, 0).state_dict() if not name.startswith(left_out)]
    return names | {name: _their_names(name, naming) for name in ours}


def _their_names(name: str, naming: TensorNaming) -> tuple[str, ...]:
    module, dot, kind = name.rpartition(".")
    number = "".join(re.findall(r"\d+", module))
    theirs = naming.modules[re.sub(r"\d+", "{}", module) or name]
    return tuple(f"{each.format(number)}.{kind}" if dot else each for each in theirs)


def _meta_encoder(shape: EncoderShape, vocabulary: int) -> Encoder:
    """Return an encoder of ours that takes no memory."""
    with torch.device("meta"):
        return Encoder(shape, vocabulary)


def to_checkpoint(
    tensors: Mapping[str, Tensor], shape: EncoderShape, model_type: str, head: int | None = None
) -> dict[str, Tensor]:
    """Return our tensors under their names; other MLM heads than `head` stay behind.

    Their output projection is tied to the token table and their second name of the output bias to the first, so that
    neither is written twice.
    """
    names = tensor_names(shape, model_type, head)
    return {
        name: part.contiguous()
        for ours, theirs in names.items()
        for name, part in zip(theirs, tensors[ours].detach().chunk(len(theirs)), strict=True)
    }


def without_wrappers(tensors: Mapping[str, Tensor], model_type: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return tensors by the names that the model itself gives them, and sentences about names that were changed.

    torch.compile and FSDP put names of their own inside, DataParallel and Lightning one before them.
    """
    found = {_INSIDE.sub("", name): tensor for name, tensor in tensors.items()}
    naming = TENSOR_NAMINGS[model_type]
    tables = (naming.table, naming.table.removeprefix(f"{naming.body}."))
    inner = [(name, table) for table in tables for name in found if name.endswith(f".{table}")]
    if inner and not any(table in found for table in tables):
        name, table = inner[0]
        before = name.removesuffix(table)
        if not set(before.rstrip(".").split(".")) <= _BEFORE:
            raise CheckpointError(
                f"names of the checkpoint's tensors begin with {before!r} ({name}): the encoder is a part of another "
                f"model, or not one of type {model_type!r}. Save that part alone with save_pretrained()."
            )
        found = {each.removeprefix(before): tensor for each, tensor in found.items()}
    changed = sorted(tensors.keys() - found.keys())
    notes = [f"{name} is that of a wrapped model: it and all others were unwrapped" for name in changed[:1]]
    return found, notes


def has_mlm_head(tensors: Mapping[str, Tensor], model_type: str) -> bool:
    """Whether their tensors hold any part of an MLM head or an output bias; those of an encoder alone do not."""
    naming = TENSOR_NAMINGS[model_type]
    parts = [*naming.modules["heads.{}.dense"], *naming.modules["heads.{}.norm"], naming.decoder, naming.bias]
    return any(name.startswith(tuple(parts)) for name in tensors)


def from_checkpoint(
    tensors: Mapping[str, Tensor],
    shape: EncoderShape,
    model_type: str,
    vocabulary: int,
    tied: bool = True,
    has_output_bias: bool = True,
) -> ConvertedWeights:
    """Return their tensors under our names, with one MLM head at the last layer unless the shape has none.

    `vocabulary`, the rows of the token table, `tied` and `has_output_bias` are what its configuration says.
    """
    naming = TENSOR_NAMINGS[model_type]
    notes = list[str]()
    found = _without_unused(_with_body_prefix(_renamed(tensors), naming), naming, notes)
    if shape.mlm_heads:
        found = _with_tied_output(found, naming, tied, notes)
        if not has_output_bias:
            found[naming.bias] = torch.zeros(vocabulary)
            notes.append(f"{naming.bias} is zeros, as the checkpoint has none")
    else:
        notes.append(_NO_HEAD)
    names = tensor_names(shape, model_type, shape.layers if shape.mlm_heads else None)
    _require_tensors(found, _shapes(shape, vocabulary, names))
    if halves := sorted({str(tensor.dtype) for tensor in found.values()} - {"torch.float32"}):
        notes.append(f"weights of {', '.join(halves)} became float32, which training needs; none changed its value")
    converted = {ours: torch.cat([found[name].float() for name in theirs]) for ours, theirs in names.items()}
    return ConvertedWeights({"vocabulary.bias_V": torch.zeros(vocabulary)} | converted, notes)


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """BERT's oldest checkpoints have TensorFlow's names for a LayerNorm's tensors."""
    renamed = {}
    for name, tensor in tensors.items():
        old = next((ending for ending in _OLD_ENDINGS if name.endswith(ending)), None)
        renamed[name.removesuffix(old) + _OLD_ENDINGS[old] if old else name] = tensor
    return renamed


def _with_body_prefix(tensors: dict[str, Tensor], naming: TensorNaming) -> dict[str, Tensor]:
    """An encoder that was saved alone has names without the prefix of the body."""
    prefix = f"{naming.body}."
    if any(name.startswith(prefix) for name in tensors):
        return tensors
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _without_unused(tensors: Mapping[str, Tensor], naming: TensorNaming, notes: list[str]) -> dict[str, Tensor]:
    known = {name.format(body=naming.body): what for name, what in _UNUSED_TENSORS.items()}
    notes += [f"{name} is left out: {known[name]}" for name in sorted(tensors.keys() & known.keys())]
    return {name: tensor for name, tensor in tensors.items() if name not in known}


def _with_tied_output(
    tensors: Mapping[str, Tensor], naming: TensorNaming, tied: bool, notes: list[str]
) -> dict[str, Tensor]:
    """The checkpoint with one table and one output bias: those that transformers computes with."""
    found = dict(tensors)
    table, bias = naming.table, naming.bias
    projection, own_bias = f"{naming.decoder}.weight", f"{naming.decoder}.bias"
    if tied and table not in found and projection in found:
        found[table] = found[projection]
    if not tied and projection not in found:
        raise CheckpointError(
            f"the checkpoint lacks {projection}, though its configuration says tie_word_embeddings = false. Set that "
            "to true if its output projection is its token table, or fetch it anew."
        )
    if projection in found and table in found and not torch.equal(found.pop(projection), found[table]):
        raise CheckpointError(
            f"{projection} differs from {table}: the checkpoint's output projection is a matrix of its own. The method "
            "ties the two (paper section 2), as a language brings one table. Take a checkpoint with tied embeddings."
        )
    if own_bias != bias and own_bias in found:
        if bias in found and not torch.equal(found[bias], found[own_bias]):
            notes.append(f"{bias} is left out: transformers computes with {own_bias}, which differs")
        found[bias] = found.pop(own_bias)
    return found


def _shapes(shape: EncoderShape, vocabulary: int, names: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shape that each tensor of theirs must have."""
    whole = _meta_encoder(shape, vocabulary).state_dict()
    return {
        name: tuple(part.shape)
        for ours, theirs in names.items()
        for name, part in zip(theirs, whole[ours].chunk(len(theirs)), strict=True)
    }


def _require_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    if missing := sorted(expected.keys() - tensors.keys()):
        raise CheckpointError(
            f"the checkpoint lacks {_listed(missing)}. It must be that of a masked language model with its head, or of "
            "an encoder alone (transformers' ...ForMaskedLM or ...Model), not of a finetuned task, and whole."
        )
    if surplus := sorted(tensors.keys() - expected.keys()):
        raise CheckpointError(
            f"the checkpoint holds {_listed(surplus)}, for which its architecture has no place. Take the plain masked "
            "language model, without adapters or heads of tasks, or correct num_hidden_layers in its config.json."
        )
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if wrong := [
        f"{name} is {found[name]}, not {expected[name]}" for name in sorted(expected) if found[name] != expected[name]
    ]:
        raise CheckpointError(
            f"the checkpoint does not fit its config.json: {_listed(wrong)}. Fetch both anew, from one source."
        )
    if unfit := sorted(f"{name} ({tensor.dtype})" for name, tensor in tensors.items() if tensor.dtype not in _FLOATS):
        raise CheckpointError(
            f"the checkpoint has tensors that are not float32, float16 or bfloat16: {_listed(unfit)}. Take the one "
            "that is not quantised."
        )
    if broken := sorted(name for name, tensor in tensors.items() if not tensor.isfinite().all()):
        raise CheckpointError(
            f"the checkpoint has values that are not finite in {_listed(broken)}. Fetch it anew, or take another."
        )


def _listed(names: list[str]) -> str:
    """All of the names up to twenty; the count of those behind, since a layer too many alone has sixteen."""
    shown = ", ".join(names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown
