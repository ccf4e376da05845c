"""A task and its languages as one ONNX bundle, held to what PyTorch computes.

The body is exported once, with the token table as an input, so that every language is a table beside it. Its weights
stand in a safetensors file that `body.onnx` points into: one copy, one fingerprint, and no limit of 2 GB.

Legend: B batch, T tokens, V vocabulary, D width.
"""

import contextlib
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft import artifact
from lingraft.artifact import Artifact, Draft, Kind
from lingraft.encoder import Vocabulary
from lingraft.errors import ExportError, MissingExtraError
from lingraft.gate_config import PARITY_TOLERANCE
from lingraft.models import Embeddings, Primary, TaskModel, load_embeddings, load_primary, load_task
from lingraft.pieces import SpecialIds
from lingraft.serving.bundle import BODY_FILE, table_part
from lingraft.serving.runtime import LOGITS, TABLE, TOKENS, VISIBLE, Body, installed_runtime
from lingraft.task_config import SERVED_KINDS
from lingraft.tasks.classification import Classifier
from lingraft.tasks.pairs import pad

try:
    import onnx_ir
    import onnxscript  # noqa: F401  torch.onnx needs it, and says so only in the midst of the work
except ImportError as error:
    raise MissingExtraError("onnxscript", "export") from error

OPSET = 20
"""Opset 23 writes one Attention node, whose kernel in ONNX Runtime 1.31 refuses a mask that is the same for all
queries."""
_BODY_PART = "body"


def bundle(primary: Path, task: Path, embeddings: Sequence[Path], out: Path) -> Artifact:
    """Export a task with the source language and all languages given.

    Args:
        primary: brings the source language's table.
        task: the finetuned body.
        embeddings: one artifact a language.
        out: folder of the bundle.

    Raises:
        AlignmentError: the task or embeddings belong to another primary.
        ExportError: the task is none that the endpoint can answer, two of the inputs are of one language, or ONNX
            Runtime computes something else than PyTorch.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    installed_runtime()
    source, model = load_primary(primary), load_task(task)
    _require_single_texts(model)
    languages = _by_language([source, *(load_embeddings(folder) for folder in embeddings)])
    for brought in languages.values():
        model.swap_in(brought)
    with artifact.create(out, Kind.BUNDLE) as draft:
        _write_body(draft, model.net)
        for language, brought in languages.items():
            _write_language(draft, language, brought)
        draft.facts = _facts(source, model, languages)
        draft.facts["details"]["parity"] = _parity(draft.folder / BODY_FILE, model, languages)
    return Artifact.load(out, Kind.BUNDLE)


def parity(task: Path, embeddings: Path) -> float:
    """Largest absolute difference of a logit between ONNX Runtime and PyTorch, with one language put into a task.

    Raises:
        AlignmentError: the embeddings belong to another primary than the task.
        ExportError: the task is none that the endpoint can answer.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be.
    """
    installed_runtime()
    model, brought = load_task(task), load_embeddings(embeddings)
    _require_single_texts(model)
    model.swap_in(brought)
    with tempfile.TemporaryDirectory() as folder:
        draft = Draft(Path(folder), Kind.BUNDLE)
        _write_body(draft, model.net)
        return _difference(Body.open(draft.folder / BODY_FILE), model, brought)


def _require_single_texts(model: TaskModel) -> None:
    if model.settings.kind not in SERVED_KINDS:
        raise ExportError(
            f"task {model.name!r} is of kind {model.settings.kind!r}, but the endpoint answers {list(SERVED_KINDS)}. "
            "Export it for transformers instead: lingraft export hf."
        )


def _by_language(brought: Sequence[Primary | Embeddings]) -> dict[str, Primary | Embeddings]:
    names = [one.tokenizer.language for one in brought]
    if len(set(names)) < len(names):
        raise ExportError(f"languages {names} are not distinct. Give one embeddings artifact for each language.")
    return dict(zip(names, brought, strict=True))


class _OverTable(nn.Module):
    """The classifier as a function of the table too."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier.eval().requires_grad_(False)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, table_VD: Tensor) -> Tensor:
        given = {"encoder.vocabulary.table_VD": table_VD}
        logits_BC: Tensor = torch.func.functional_call(self.classifier, given, (tokens_BT, visible_BT))
        return logits_BC


def _write_body(draft: Draft, classifier: Classifier) -> None:
    """Write `body.onnx`, of any batch, tokens up to a block, and any vocabulary."""
    shape = classifier.encoder.shape
    tokens_BT = torch.full((2, max(2, shape.block_tokens // 2)), 0)
    table_VD = torch.zeros(8, shape.width)
    batch, vocabulary = torch.export.Dim("batch"), torch.export.Dim("vocabulary")
    tokens = torch.export.Dim("tokens", max=shape.block_tokens)
    with _quietly():
        program = torch.onnx.export(
            _OverTable(classifier),
            (tokens_BT, torch.ones_like(tokens_BT, dtype=torch.bool), table_VD),
            input_names=[TOKENS, VISIBLE, TABLE],
            output_names=[LOGITS],
            dynamic_shapes=({0: batch, 1: tokens}, {0: batch, 1: tokens}, {0: vocabulary}),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    _save(draft, program.model)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's chatter: parts of torchvision that are absent, deprecations inside torch."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _save(draft: Draft, model: onnx_ir.Model) -> None:
    """Put the weights into the artifact's part `body`, and the graph that points at them beside it."""
    values = model.graph.initializers
    weights = _weights(model)
    draft.tensors(_BODY_PART, weights)
    file = draft.folder / f"{_BODY_PART}.safetensors"
    for name, (offset, length) in _places(file).items():
        values[name].const_value = onnx_ir.ExternalTensor(
            file.name,
            offset,
            length,
            onnx_ir.DataType.FLOAT,
            shape=onnx_ir.Shape(weights[name].shape),
            name=name,
            base_dir=draft.folder,
        )
    # Stack traces of this machine: they tell its paths, and make equal bodies differ.
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
    onnx_ir.save(model, draft.folder / BODY_FILE)


def _weights(model: onnx_ir.Model) -> dict[str, Tensor]:
    """All but integers and scalars, which stay in the graph: shapes are read from them before other files are."""
    held = {name: value.const_value for name, value in model.graph.initializers.items()}
    return {
        name: torch.from_numpy(tensor.numpy().copy())
        for name, tensor in held.items()
        if tensor is not None and tensor.dtype == onnx_ir.DataType.FLOAT and len(tensor.shape)
    }


def _places(safetensors: Path) -> dict[str, tuple[int, int]]:
    """Offset in the file and length of each tensor, in bytes: 8 bytes of header length, JSON header, then data."""
    with safetensors.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(header_bytes))
    data = 8 + header_bytes
    spans = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (data + start, end - start) for name, (start, end) in spans.items()}


def _write_language(draft: Draft, language: str, brought: Primary | Embeddings) -> None:
    (draft.folder / language).mkdir()
    draft.tensors(table_part(language), {"table_VD": _vocabulary(brought).table_VD})
    shutil.copyfile(brought.tokenizer.model, draft.folder / language / brought.tokenizer.model.name)


def _vocabulary(brought: Primary | Embeddings) -> Vocabulary:
    return brought.encoder.vocabulary if isinstance(brought, Primary) else brought.vocabulary


def _facts(source: Primary, model: TaskModel, languages: dict[str, Primary | Embeddings]) -> dict[str, Any]:
    marks = {f"embeddings-{language}": one.fingerprint for language, one in languages.items() if one is not source}
    shape = model.net.encoder.shape
    return {
        "language": source.tokenizer.language,
        "aligned_with": source.fingerprint,
        "data_hashes": {"primary": source.fingerprint, "task": model.fingerprint} | marks,
        "details": {
            "task": model.name,
            "labels": model.labels,
            "languages": list(languages),
            "tokenizers": {language: _tokenizer_facts(one) for language, one in languages.items()},
            "shape": shape.model_dump(mode="json"),
        },
    }


def _tokenizer_facts(brought: Primary | Embeddings) -> dict[str, Any]:
    return {"file": brought.tokenizer.model.name, "special_ids": brought.tokenizer.special._asdict()}


def _parity(body: Path, model: TaskModel, languages: dict[str, Primary | Embeddings]) -> dict[str, float]:
    """Largest absolute difference of a logit in each language, ONNX Runtime on the written file against PyTorch.

    Raises:
        ExportError: a difference is above the tolerance, or not a number.
    """
    opened = Body.open(body)
    found = {language: _difference(opened, model, brought) for language, brought in languages.items()}
    if not all(difference <= PARITY_TOLERANCE for difference in found.values()):
        shown = ", ".join(f"{language} {difference:.2g}" for language, difference in found.items())
        raise ExportError(
            f"ONNX Runtime and PyTorch differ by more than {PARITY_TOLERANCE:g} in a logit (largest difference: "
            f"{shown}). Nothing was written. Check that the task's weights are finite, then report it with both "
            "versions."
        )
    return found


@torch.inference_mode()
def _difference(body: Body, model: TaskModel, brought: Primary | Embeddings) -> float:
    model.swap_in(brought)
    table_VD, special = _vocabulary(brought).table_VD.detach(), brought.tokenizer.special
    rows = _probe(len(table_VD), model.shape.block_tokens, special)
    expected_BC = model.net.eval()(*pad(rows, special.pad))
    actual_BC = torch.from_numpy(body.logits(rows, special.pad, body.hold(table_VD.numpy())))
    return float((expected_BC - actual_BC).abs().max())


def _probe(vocabulary: int, block_tokens: int, special: SpecialIds) -> list[list[int]]:
    """Rows of random pieces, from a whole block down to one piece, so that all but one are padded."""
    generator = torch.Generator().manual_seed(1)
    lengths = [max(1, (block_tokens - 2) // share) for share in (1, 2, 4, block_tokens)]
    ordinary = torch.tensor(sorted(set(range(vocabulary)) - set(special)))
    draws = [ordinary[torch.randint(len(ordinary), (length,), generator=generator)] for length in lengths]
    return [[special.begin, *drawn.tolist(), special.end] for drawn in draws]
