"""A task and its languages as one ONNX bundle, held to what PyTorch computes.

The body is exported once, with the token table as an input, so that every language is a table beside it. Its weights
stand in a safetensors file that `body.onnx` points into: one copy, one fingerprint, and no limit of 2 GB.

Legend: B batch, T tokens, V vocabulary, D width.
"""

import contextlib
import json
import logging
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from lingraft import artifact
from lingraft.artifact import Artifact, Draft, Kind
from lingraft.errors import ExportError, MissingExtraError
from lingraft.models import TOKENIZER_FILE, Embeddings, Primary, TaskModel, load_embeddings, load_primary, load_task
from lingraft.serving.bundle import BODY_FILE, table_part
from lingraft.serving.runtime import LOGITS, TABLE, TOKENS, VISIBLE, Body, installed_runtime
from lingraft.tasks.labelled import Classifier, pad
from lingraft.tokenizer import BEGIN, END, SPECIAL_PIECES

try:
    import onnx_ir
    import onnxscript  # noqa: F401  torch.onnx needs it, and says so only in the midst of the work
except ImportError as error:
    raise MissingExtraError("onnxscript", "export") from error

TOLERANCE = 1e-4
"""Largest absolute difference of a logit between ONNX Runtime and PyTorch, both in float32."""
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
        ExportError: two of the inputs are of one language, or ONNX Runtime computes something else than PyTorch.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    installed_runtime()
    source, model = load_primary(primary), load_task(task)
    languages = _by_language([source, *(load_embeddings(folder) for folder in embeddings)])
    for brought in languages.values():
        model.swap_in(brought)
    with artifact.create(out, Kind.BUNDLE) as draft:
        _write_body(draft, model.classifier)
        for language, brought in languages.items():
            _write_language(draft, language, brought)
        draft.facts = _facts(source, model, languages)
        draft.facts["details"]["parity"] = _parity(draft.folder / BODY_FILE, model, languages)
    return Artifact.load(out, Kind.BUNDLE)


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
    tokens_BT = torch.full((2, max(2, shape.block_tokens // 2)), BEGIN)
    table_VD = torch.zeros(len(SPECIAL_PIECES), shape.width)
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
    constants = {value.name: value for value in model.graph.initializers.values()}
    # Integers and scalars stay in the graph: ONNX Runtime reads shapes from them before it opens other files.
    weights = {
        str(name): torch.from_numpy(value.const_value.numpy().copy())
        for name, value in constants.items()
        if value.const_value.dtype == onnx_ir.DataType.FLOAT and len(value.const_value.shape)
    }
    draft.tensors(_BODY_PART, weights)
    file = draft.folder / f"{_BODY_PART}.safetensors"
    for name, (offset, length) in _places(file).items():
        constants[name].const_value = onnx_ir.ExternalTensor(
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
    shutil.copyfile(brought.tokenizer.model, draft.folder / language / TOKENIZER_FILE)
