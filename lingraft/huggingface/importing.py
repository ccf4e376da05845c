"""A Hugging Face checkpoint as a primary: the model that one already has, ready for new languages."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import require_new
from lingraft.artifacts.manifest import Kind
from lingraft.config.encoder import MIN_BLOCK_TOKENS, EncoderShape
from lingraft.config.tasks import IMPORTED_SEED, Retrieval, Task
from lingraft.console import say
from lingraft.data.languages import require_tag
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TokenizerError
from lingraft.huggingface import hub, require_transformers
from lingraft.huggingface.config import HfConfig, parse_config
from lingraft.huggingface.hub import HfCheckpoint
from lingraft.huggingface.sentence_transformer import EmbeddingModel, is_embedding_model, read_embedding_model
from lingraft.huggingface.tokenizer import import_tokenizer
from lingraft.huggingface.weights import (
    CheckpointError,
    ConvertedWeights,
    from_checkpoint,
    has_mlm_head,
    without_wrappers,
)
from lingraft.model.encoder import Encoder
from lingraft.model.loading import save_vocabulary
from lingraft.model.swap import make_vocabulary
from lingraft.tasks.finetuned import RETRIEVAL, save_task
from lingraft.tasks.kinds import kind_of
from lingraft.training.schedule import write_curve

_TASK = "retrieval"
"""Name of an embedding model's task."""


class Imported(NamedTuple):
    """Artifacts that a checkpoint became."""

    primary: Artifact
    task: Artifact | None
    """Task of kind 'retrieval' on the primary, where the checkpoint is an embedding model."""


def import_hf(
    source: str,
    out: Path,
    language: str,
    revision: str | None = None,
    block_tokens: int | None = None,
    task_out: Path | None = None,
) -> Imported:
    """Turn a RoBERTa, XLM-R, CamemBERT, BERT or ModernBERT checkpoint into a primary, with one MLM head if it has it.

    An embedding model of sentence-transformers becomes a primary and a task: what turns the last hidden states into a
    text's vector is the task. MINIPOST starts from the primary (paper section 2, step 1b). It has cost us nothing and
    has no learning curve.

    Args:
        source: folder, or hub id such as 'roberta-base'.
        out: folder of the primary.
        language: BCP 47 tag.
        revision: branch, tag or commit on the hub.
        block_tokens: longest input of the primary, if shorter than that of the checkpoint.
        task_out: folder of the task; absent: `out` with '-retrieval' behind its name.
    """
    require_new(out)
    require_transformers()
    require_tag(language)
    found = hub.locate_checkpoint(source, revision)
    hub.require_whole(found.folder)
    embedding = read_embedding_model(found.folder) if is_embedding_model(found.folder) else None
    _require_place_of_task(out, task_out, source, embedding)
    task_out = task_out or out.with_name(f"{out.name}-retrieval")
    if embedding:
        require_new(task_out)
    folder = embedding.body if embedding else found.folder
    hub.require_no_adapter(folder)
    settings = parse_config(hub.read_config(folder))
    longest = min(settings.shape.block_tokens, embedding.longest or settings.shape.block_tokens) if embedding else None
    _require_block_tokens(longest or settings.shape.block_tokens, block_tokens)
    block_tokens = block_tokens or longest
    weights, unwrapped = without_wrappers(hub.read_weights(folder), settings.model_type)
    if not has_mlm_head(weights, settings.model_type):
        settings = settings._replace(shape=settings.shape.cut(settings.shape.layers, ()))
    with tempfile.TemporaryDirectory() as temporary:
        lower_case = embedding is not None and embedding.lower_case
        kept = import_tokenizer(folder, language, Path(temporary), lower_case)
        _require_rows(kept.tokenizer, settings.vocabulary, source)
        _require_pad(kept.tokenizer, settings, source)
        settings = _with_separators(settings, kept.separators)
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
        weighted = embedding.weighted if embedding else (folder,)
        origin = _origin(found, settings.model_type, weighted)
        vectors = None if embedding is None or embedding.tensors else embedding.settings
        primary = _save_primary(out, settings, converted, kept.tokenizer, origin=origin, vectors=vectors)
    task = _save_task(task_out, primary, settings.shape, converted, embedding) if embedding else None
    for note in (*settings.notes, *unwrapped, *converted.notes, *kept.notes, *(embedding.notes if embedding else ())):
        say(f"{source}: {note}")
    return Imported(primary, task)


def _require_place_of_task(out: Path, task_out: Path | None, source: str, embedding: EmbeddingModel | None) -> None:
    if task_out is None:
        return
    if embedding is None:
        raise CheckpointError(
            f"{source} is an encoder alone, without a task for {task_out}. Leave the task's folder (--task-out) out."
        )
    if task_out.resolve().is_relative_to(out.resolve()):
        raise CheckpointError(f"the task's folder {task_out} lies in {out}, which is the primary's. Give another.")


def _require_block_tokens(longest: int, block_tokens: int | None) -> None:
    if block_tokens is not None and not MIN_BLOCK_TOKENS <= block_tokens <= longest:
        raise CheckpointError(
            f"block_tokens {block_tokens} must be from {MIN_BLOCK_TOKENS} to {longest}, the longest input of the "
            "checkpoint."
        )


def _shortened(settings: HfConfig, converted: ConvertedWeights, block_tokens: int) -> tuple[HfConfig, ConvertedWeights]:
    """The primary for shorter inputs, which needs no positions behind them."""
    shape = settings.shape.model_copy(update={"block_tokens": block_tokens})
    rows = block_tokens + shape.family.position_offset
    cut = {name: tensor[:rows].clone() for name, tensor in converted.tensors.items() if name == "positions_TD"}
    return settings._replace(shape=shape), converted._replace(tensors=converted.tensors | cut)


def _with_separators(settings: HfConfig, separators: int | None) -> HfConfig:
    """Pairs as the tokenizer puts them together; where segments tell texts apart, as the architecture does."""
    family = settings.shape.family
    if separators is None or family.segments > 1:
        return settings
    family = family.model_copy(update={"separators": separators})
    return settings._replace(shape=settings.shape.model_copy(update={"family": family}))


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
    note = f"{surplus} rows of the token table behind the tokenizer's {pieces} pieces are left out: no text has them"
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


def _origin(found: HfCheckpoint, model_type: str, weighted: Sequence[Path]) -> dict[str, Any]:
    """Where a primary is from; `weighted` are the folders of weights, in a module's folder of which no card is."""
    return {
        "model_type": model_type,
        "name": found.name,
        "revision": found.revision,
        "package": found.package,
        "sha": found.sha or hub.content_hash(weighted),
        "licence": hub.licence(found.folder),
    }


def _save_primary(
    out: Path,
    settings: HfConfig,
    converted: ConvertedWeights,
    tokenizer: Tokenizer,
    origin: dict[str, Any],
    vectors: Retrieval | None,
) -> Artifact:
    tensors = converted.tensors
    vocabulary = make_vocabulary(tensors["vocabulary.table_VD"], tensors["vocabulary.bias_V"], tokenizer.special)
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.tensors("body", {name: t for name, t in tensors.items() if not name.startswith("vocabulary.")})
        save_vocabulary(draft, vocabulary, tokenizer)
        write_curve(draft, ())
        draft.facts = {
            "language": tokenizer.language,
            "tokenizer_hash": tokenizer.hash,
            "details": {"shape": settings.shape.model_dump(mode="json"), "special_ids": tokenizer.special._asdict()}
            | ({RETRIEVAL: vectors.model_dump(mode="json")} if vectors else {}),
            "record": {"precision": "fp32", "device": "cpu", "origin": origin},
        }
    return Artifact.load(out, Kind.PRIMARY)


def _save_task(
    out: Path, primary: Artifact, shape: EncoderShape, converted: ConvertedWeights, embedding: EmbeddingModel
) -> Artifact:
    """Write the task, whose body is the primary's own."""
    settings = Task(name=_TASK, kind="retrieval", retrieval=embedding.settings)
    kind = kind_of(settings)
    encoder = Encoder(shape, 0)
    net = kind.net(encoder, [])
    body = {name: tensor for name, tensor in converted.tensors.items() if not name.startswith("vocabulary.")}
    # A task has no vocabulary; of all else, none may be missing and stay random.
    body |= {f"vocabulary.{name}": tensor for name, tensor in encoder.vocabulary.state_dict().items()}
    net.load_state_dict({f"encoder.{name}": tensor for name, tensor in body.items()} | embedding.tensors)
    with artifact.create(out, Kind.TASK) as draft:
        save_task(draft, net)
        write_curve(draft, ())
        draft.facts = {
            "language": primary.manifest.language,
            "tokenizer_hash": primary.manifest.tokenizer_hash,
            "aligned_with": primary.fingerprint,
            "details": {
                "task": settings.name,
                "settings": settings.model_dump(mode="json"),
                "labels": [],
                "seed": IMPORTED_SEED,
                "metric": kind.metric,
                "shape": shape.model_dump(mode="json"),
            },
            "record": primary.manifest.record,
        }
    return Artifact.load(out, Kind.TASK)
