"""A model for one language as a folder that transformers loads without code of ours, held to what our own computes.

A task of kind 'retrieval' is a folder of sentence-transformers, whose encoder transformers loads.

Legend: B batch, T tokens, D width, V vocabulary.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lingraft.artifacts.artifact import require_aligned
from lingraft.artifacts.files import atomic_folder, require_new, write_json, write_text
from lingraft.errors import ExportError
from lingraft.huggingface import require_transformers
from lingraft.huggingface.card import CardSubject, model_card
from lingraft.huggingface.fast_tokenizer import fast_tokenizer, tokenizer_config
from lingraft.huggingface.model import encoder_of, hf_class_of, hf_config, hf_tensors, own_model_type
from lingraft.huggingface.sentence_transformer import write_modules
from lingraft.model.encoder import Encoder
from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings, load_primary
from lingraft.tasks.finetuned import TaskModel, load_task, own_task
from lingraft.tasks.pairs import pad, pad_types
from lingraft.tasks.retrieval import TextEmbedder

TOLERANCE = 1e-5
"""Largest absolute difference of an output between transformers on the written folder and ours, both in float64."""
_LONGEST_ROW = 512
"""Tokens that the two are compared on, at most."""


class HfExport(NamedTuple):
    """A folder that transformers or sentence-transformers loads."""

    folder: Path
    loader: str
    """Class that loads it."""
    difference: float
    """Largest absolute difference of a logit, or of a hidden state of an embedding model."""


def export_hf(
    primary: Path,
    out: Path,
    embeddings: Path | None = None,
    task: Path | None = None,
    evaluation: Path | None = None,
) -> HfExport:
    """Write a folder for transformers' AutoModel classes and AutoTokenizer, with a model card.

    sentence-transformers loads that of a task of kind 'retrieval', with pooling, layers and prompts. Without
    `embeddings` the source's own are written; without `task`, a masked language model with the primary's last head, or
    the embedding model that it is. `evaluation` is for the card.
    """
    require_new(out)
    require_transformers()
    source = load_primary(primary)
    brought = load_embeddings(embeddings) if embeddings else source
    if isinstance(brought, Embeddings):
        source.lend_to(brought)
    finetuned = load_task(task) if task else own_task(source)
    net = _net(source, brought, finetuned)
    origin = source.manifest.record.get("origin")
    shape = encoder_of(net).shape
    model_type = origin["model_type"] if origin else own_model_type(shape)
    labels = finetuned.labels if finetuned else []
    page = model_card(CardSubject(source, brought, finetuned, hf_class_of(net), model_type), evaluation)
    with atomic_folder(out) as folder:
        write_json(folder / "config.json", hf_config(net, model_type, labels))
        save_file(hf_tensors(net, model_type), folder / "model.safetensors", metadata={"format": "pt"})
        write_text(folder / "tokenizer.json", fast_tokenizer(brought.tokenizer, shape).to_str(pretty=True))
        write_json(folder / "tokenizer_config.json", tokenizer_config(brought.tokenizer, shape))
        if isinstance(net, TextEmbedder):
            write_modules(folder, net)
        write_text(folder / "README.md", page)
        difference = _difference(folder, net)
    return HfExport(out, hf_class_of(net).loader, difference)


def _net(source: LoadedPrimary, brought: LoadedPrimary | Embeddings, finetuned: TaskModel | None) -> nn.Module:
    if finetuned is None:
        if not source.encoder.depths:
            raise ExportError(
                "the primary has no MLM head, so that it is no masked language model. Export a task of it."
            )
        if isinstance(brought, Embeddings):
            source.swap_in(brought)
        return source.encoder
    require_aligned("the task", finetuned.aligned_with, source.fingerprint, "Finetune the task again")
    finetuned.swap_in(brought)
    assert isinstance(finetuned.net, nn.Module)
    return finetuned.net


@torch.inference_mode()
def _difference(folder: Path, net: nn.Module) -> float:
    """Largest absolute difference of a logit, or of a hidden state of an embedding model.

    Computed in float64, in which equal weights leave no room for rounding: a difference is then a difference of models.
    """
    net.double().eval()
    theirs = _load_transformers(folder, hf_class_of(net).auto_class)
    tokens_BT, visible_BT, types_BT = _parity_batch(encoder_of(net))
    given = {} if types_BT is None else {"token_type_ids": types_BT}
    found = theirs(input_ids=tokens_BT, attention_mask=visible_BT.long(), **given)
    ours = _lingraft_outputs(net, tokens_BT, visible_BT, types_BT)
    differences = (ours - _transformers_outputs(found)).abs()
    difference = float((differences[visible_BT] if ours.dim() > 2 else differences).max())
    if not difference <= TOLERANCE:
        raise ExportError(
            f"transformers and lingraft differ by {difference:.2g} in an output, more than {TOLERANCE:g}. Nothing was "
            "written. Check that the weights are finite, then report it with the versions of both."
        )
    return difference


def _load_transformers(folder: Path, auto_class: str) -> Any:
    import transformers

    with _progress_bar_off():
        model, report = getattr(transformers, auto_class).from_pretrained(
            folder, dtype=torch.float64, local_files_only=True, output_loading_info=True
        )
    if wrong := {what: names for what, names in report.items() if names}:
        raise ExportError(
            f"transformers {transformers.__version__} cannot load all of the model: {wrong}. Nothing was written. "
            "Report it with the versions of both."
        )
    return model.eval()


@contextlib.contextmanager
def _progress_bar_off() -> Iterator[None]:
    """Turn off transformers' own progress bar, which would come between ours."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _transformers_outputs(found: Any) -> Tensor:
    if "start_logits" in found:  # starts and ends of answers, which ours has side by side
        return torch.stack([found.start_logits, found.end_logits], -1)
    outputs: Tensor = found.logits if "logits" in found else found.last_hidden_state
    return outputs


def _lingraft_outputs(net: nn.Module, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None) -> Tensor:
    """Logits of ours; (B, T, V) of masked tokens for a bare encoder, and hidden states (B, T, D) below vectors."""
    if not isinstance(net, Encoder | TextEmbedder):
        logits: Tensor = net(tokens_BT, visible_BT, types_BT)
        return logits
    encoder = encoder_of(net)
    depth = encoder.shape.layers
    hidden_BTD = encoder.hidden_states(tokens_BT, (depth,), visible_BT, types_BT)[depth]
    if isinstance(net, TextEmbedder):
        return hidden_BTD
    logits_BTV: Tensor = net.heads[str(depth)](hidden_BTD, net.vocabulary)
    return logits_BTV


def _parity_batch(encoder: Encoder) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows of random pieces, from a long input down to one piece, all but one padded; pairs if there are segments.

    Padding stands at the end only: transformers' RoBERTa counts positions by what is no padding. The longest row is of
    `_LONGEST_ROW` tokens at most, several windows of local attention: logits of 8,192 tokens would take 13 GB.
    """
    shape = encoder.shape
    longest = min(shape.block_tokens, _LONGEST_ROW)
    special = encoder.vocabulary.special
    generator = torch.Generator().manual_seed(1)
    rows = []
    for share in (1, 2, 4, longest):
        length = max(1, (longest - 2) // share)
        drawn = torch.randint(len(encoder.vocabulary), (length,), generator=generator)
        rows.append([special.begin, *drawn.where(drawn != special.pad, special.unknown).tolist(), special.end])
    types = [[int(2 * place > len(row)) for place in range(len(row))] for row in rows]
    return *pad(rows, special.pad), pad_types(types if shape.family.segments > 1 else None)
