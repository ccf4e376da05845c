"""A Hugging Face checkpoint as a primary: the model that one already has, ready for new languages."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pydantic

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import require_new
from lingraft.artifacts.manifest import Kind
from lingraft.config.encoder import EncoderShape
from lingraft.config.section import Language
from lingraft.console import say
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TokenizerError
from lingraft.huggingface import hub
from lingraft.huggingface.config import HfConfig, parse_config
from lingraft.huggingface.hub import HfCheckpoint
from lingraft.huggingface.tokenizer import import_tokenizer
from lingraft.huggingface.weights import CheckpointError, ConvertedWeights, from_checkpoint
from lingraft.model.loading import save_vocabulary
from lingraft.model.swap import make_vocabulary
from lingraft.training.schedule import write_curve


def import_hf(
    source: str, out: Path, language: str, revision: str | None = None, block_tokens: int | None = None
) -> Artifact:
    """Turn a masked language model of RoBERTa, XLM-R, CamemBERT, BERT or ModernBERT into a primary with one head.

    MINIPOST starts from it (paper section 2, step 1b). It has cost us nothing and has no learning curve. `source` is a
    folder or a hub id such as 'roberta-base', `language` a BCP 47 tag, and `revision` a branch, tag or commit on the
    hub. `block_tokens` is the longest input of the primary, if shorter than that of the checkpoint.

    Raises:
        CheckpointError: it cannot be had, is a pickle, of another architecture, or lacks or exceeds its tensors; or
            `block_tokens` is not from 8 to the checkpoint's longest input.
        TokenizerError: its tokenizer is missing or damaged, has more pieces than the token table rows, or another
            pad id than the configuration, or lacks a special piece.
        MissingExtraError: the extra 'huggingface' is not installed.
        ArtifactError: `out` is not empty or cannot be written.
    """
    require_new(out)
    _require_language(language)
    found = hub.locate_checkpoint(source, revision)
    settings = parse_config(hub.read_config(found.folder))
    _require_block_tokens(settings.shape, block_tokens)
    weights = hub.read_weights(found.folder)
    with tempfile.TemporaryDirectory() as folder:
        kept = import_tokenizer(found.folder, settings.model_type, language, Path(folder))
        _require_rows(kept.tokenizer, settings.vocabulary, source)
        _require_pad(kept.tokenizer, settings, source)
        converted = from_checkpoint(
            weights,
            settings.shape,
            settings.model_type,
            vocabulary=settings.vocabulary,
            tied=settings.tied,
            has_output_bias=settings.has_output_bias,
        )
        converted = _trim_vocabulary(converted, len(kept.tokenizer))
        if block_tokens:
            settings, converted = _shortened(settings, converted, block_tokens)
        made = _save(out, settings, converted, kept.tokenizer, found)
    for note in (*settings.notes, *converted.notes, *kept.notes):
        say(f"{source}: {note}")
    return made


def recipe_section(shape: EncoderShape) -> str:
    """The [encoder] section, in TOML, of a recipe that works on a primary of this shape."""
    sections = {"encoder": shape.model_dump(mode="json")}
    sections["encoder.family"] = sections["encoder"].pop("family")
    if pre_norm := sections["encoder.family"].pop("pre_norm", None):
        sections["encoder.family.pre_norm"] = pre_norm
    return "\n".join(
        line
        for name, fields in sections.items()
        for line in (f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in fields.items() if value is not None))
    )


def _toml(value: Any) -> str:
    return json.dumps(value)


def _require_language(language: str) -> None:
    try:
        pydantic.TypeAdapter(Language).validate_python(language)
    except pydantic.ValidationError as error:
        raise CheckpointError(f"language {language!r} is no BCP 47 tag. Give one such as 'en' or 'pt-BR'.") from error


def _require_block_tokens(shape: EncoderShape, block_tokens: int | None) -> None:
    if block_tokens is not None and not 8 <= block_tokens <= shape.block_tokens:
        raise CheckpointError(
            f"block_tokens {block_tokens} must be from 8 to {shape.block_tokens}, the longest input of the checkpoint."
        )


def _shortened(settings: HfConfig, converted: ConvertedWeights, block_tokens: int) -> tuple[HfConfig, ConvertedWeights]:
    """The primary for shorter inputs, which needs no positions behind them."""
    shape = settings.shape.model_copy(update={"block_tokens": block_tokens})
    rows = block_tokens + shape.family.position_offset
    cut = {name: tensor[:rows].clone() for name, tensor in converted.tensors.items() if name == "positions_TD"}
    return settings._replace(shape=shape), converted._replace(tensors=converted.tensors | cut)


def _require_rows(tokenizer: Tokenizer, rows: int, source: str) -> None:
    """Every piece needs a row; rows without a piece are padding, and are trimmed."""
    if len(tokenizer) <= rows:
        return
    raise TokenizerError(
        f"the token table of {source} has {rows} rows, but its tokenizer has {len(tokenizer)} pieces. If tokens were "
        "added to the tokenizer, make the two agree with transformers: model.resize_token_embeddings(len(tokenizer)), "
        "then save_pretrained() both. If not, fetch the right tokenizer."
    )


def _trim_vocabulary(converted: ConvertedWeights, pieces: int) -> ConvertedWeights:
    """The vocabulary without rows behind the last piece, which pad a table to a multiple that GPUs like."""
    tensors = converted.tensors
    names = ("vocabulary.table_VD", "vocabulary.bias_V")
    surplus = len(tensors[names[0]]) - pieces
    if not surplus:
        return converted
    note = f"{surplus} rows of the token table behind the tokenizer's {pieces} pieces are left out, as padding"
    trimmed = {name: tensors[name][:pieces].clone() for name in names}
    return ConvertedWeights(tensors | trimmed, [*converted.notes, note])


def _require_pad(tokenizer: Tokenizer, settings: HfConfig, source: str) -> None:
    """RoBERTa's family skips what config.json takes for padding as it counts positions; others count from the first."""
    named = settings.shape.family.position_offset - 1
    found = tokenizer.special.pad
    if named < 0 or named == found:
        return
    raise TokenizerError(
        f"config.json of {source} has pad_token_id {named}, but its tokenizer pads with id {found}. Positions are "
        "counted by the first, so that the two must agree. Correct the one that is wrong, or fetch both anew, from "
        "one source."
    )


def _save(
    out: Path, settings: HfConfig, converted: ConvertedWeights, tokenizer: Tokenizer, found: HfCheckpoint
) -> Artifact:
    tensors = converted.tensors
    origin = {
        "model_type": settings.model_type,
        "name": found.name,
        "revision": found.revision,
        "sha": found.sha or hub.content_hash(found.folder),
        "licence": hub.licence(found.folder),
    }
    vocabulary = make_vocabulary(tensors["vocabulary.table_VD"], tensors["vocabulary.bias_V"], tokenizer.special)
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.tensors("body", {name: t for name, t in tensors.items() if not name.startswith("vocabulary.")})
        save_vocabulary(draft, vocabulary, tokenizer)
        write_curve(draft, ())
        draft.facts = {
            "language": tokenizer.language,
            "tokenizer_hash": tokenizer.hash,
            "details": {"shape": settings.shape.model_dump(mode="json"), "special_ids": tokenizer.special._asdict()},
            "record": {"precision": "fp32", "device": "cpu", "origin": origin},
        }
    return Artifact.load(out, Kind.PRIMARY)
