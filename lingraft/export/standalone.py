"""Models for servers without support for bundles: one ONNX file for each language; all share one file of body weights.

Legend: B batch, T tokens, V vocabulary, D width.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import onnx_ir
import torch
from safetensors.torch import save_file

from lingraft.artifacts.files import atomic_folder
from lingraft.bundle.format import BIAS, FEATURES, SCALE, TABLE, Precision, TableFormat, body_part
from lingraft.bundle.runtime import Body, installed_runtime
from lingraft.bundle.self_test import max_abs_difference
from lingraft.config.tasks import PRIMARY
from lingraft.errors import ExportError
from lingraft.export.body import BodyInputs
from lingraft.export.bundling import load_sources
from lingraft.export.exported_model import ExportedModel, graph_metadata
from lingraft.export.graph import Graph
from lingraft.export.heads import Outputs
from lingraft.export.language import ExportedLanguage, TokenBatch, table_tensors
from lingraft.export.parity import parity_batch, require_parity

IDS = "input_ids"
MASK = "attention_mask"
TYPE_IDS = "token_type_ids"
LOGITS = "logits_BTV"


def export_standalone(
    primary: Path,
    task: Path | None,
    embeddings: Sequence[Path],
    out: Path,
    precision: Precision = "fp32",
    tables: TableFormat = "float32",
) -> dict[str, float]:
    """Write `<language>.onnx`, which plain ONNX Runtime can open, for the source and all target languages.

    A model's inputs are token ids, the attention mask and, if the family has them, segment ids, all int64. Its outputs
    are those of a bundle of its kind; a primary also has the logits (B, T, V) of every token. The folder holds each
    language's table (`<language>.safetensors`) and tokenizer besides, and the body's weights, which all models share.

    Args:
        primary: primary artifact, which holds the source language's table.
        task: finetuned task; None exports the primary's own body.
        embeddings: embeddings artifacts, one for each target language.
        out: folder of the models.
        precision: precision of the body.
        tables: number format of the tables; a primary has float32, since logits are products with the whole table.

    Returns:
        Largest absolute difference of an output from PyTorch, by language.

    Raises:
        AlignmentError: the task or embeddings belong to another primary.
        ExportError: two inputs have the same language, the outputs of ONNX Runtime and PyTorch differ, or a primary's
            tables are not float32.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    installed_runtime()
    exported, languages, _ = load_sources(primary, task, embeddings)
    if exported.kind == PRIMARY and tables != "float32":
        raise ExportError(f"a primary's standalone models have float32 tables, not {tables}. Leave the format out.")
    with atomic_folder(out) as folder:
        found = {
            language: _export_language(folder, exported, ExportedLanguage.from_artifact(one), precision, tables)
            for language, one in languages.items()
        }
        require_parity(precision, found)
    return found


def _export_language(
    folder: Path,
    exported: ExportedModel,
    exported_language: ExportedLanguage,
    precision: Precision,
    tables: TableFormat,
) -> float:
    tokenizer = exported_language.tokenizer
    shutil.copyfile(tokenizer.model, folder / f"{tokenizer.language}.{tokenizer.model.name}")
    model = write_standalone_model(folder, exported, exported_language, precision, tables)
    exported.set_vocabulary(exported_language.as_stored(tables))
    return _difference(model, exported, parity_batch(exported_language, exported))


def write_standalone_model(
    folder: Path,
    exported: ExportedModel,
    exported_language: ExportedLanguage,
    precision: Precision = "fp32",
    tables: TableFormat = "float32",
) -> Path:
    """Write one language's model with its weights, and return its file; body weights that exist are kept."""
    language = exported_language.tokenizer.language
    graph = Graph(body_part(precision))
    outputs = _add_nodes(graph, exported, exported_language, precision, tables)
    for part, tensors in graph.parts.items():
        if not (file := folder / f"{part}.safetensors").exists():
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    file = folder / f"{language}.onnx"
    graph.save(file, outputs, {**graph_metadata(exported), "language": language})
    return file


def _add_nodes(
    graph: Graph,
    exported: ExportedModel,
    exported_language: ExportedLanguage,
    precision: Precision,
    tables: TableFormat,
) -> Outputs:
    language = exported_language.tokenizer.language
    size = ["batch", "tokens"]
    ids, mask = (graph.input(name, torch.int64, size) for name in (IDS, MASK))
    types = graph.input(TYPE_IDS, torch.int64, size) if exported.shape.family.segments else None
    rows = {
        name: graph.weight(name, tensor, language)
        for name, tensor in table_tensors(exported_language.vocabulary.table_VD, tables).items()
    }
    inputs = BodyInputs(_add_embedding_lookup(graph, rows, ids, tables), graph.cast(mask, torch.bool), types)
    outputs = exported.add_nodes(graph, inputs, precision)
    if exported.kind != PRIMARY:
        return outputs
    bias = graph.weight(BIAS, exported_language.vocabulary.bias_V, language)
    products = graph.fused("FusedMatMul", outputs[FEATURES][0], rows[TABLE], transB=1)
    return {**outputs, LOGITS: (graph.op("Add", products, bias), [*size, len(exported_language.vocabulary)])}


def _add_embedding_lookup(
    graph: Graph, rows: dict[str, onnx_ir.Value], ids: onnx_ir.Value, tables: TableFormat
) -> onnx_ir.Value:
    embedded = graph.op("Gather", rows[TABLE], ids)
    if tables == "float32":
        return embedded
    embedded = graph.cast(embedded, torch.float32)
    if tables == "float16":
        return embedded
    scales = graph.op("Unsqueeze", graph.op("Gather", rows[SCALE], ids), graph.constant([-1]))
    return graph.op("Mul", embedded, scales)


def _difference(model: Path, exported: ExportedModel, drawn: TokenBatch) -> float:
    session = Body.open(model).session
    inputs = {IDS: drawn.tokens_BT.numpy(), MASK: drawn.visible_BT.long().numpy()}
    if exported.shape.family.segments:
        types_BT = torch.zeros_like(drawn.tokens_BT) if drawn.types_BT is None else drawn.types_BT
        inputs[TYPE_IDS] = types_BT.numpy()
    expected = exported.torch_outputs(*drawn)
    if exported.kind == PRIMARY:
        vocabulary = exported.encoder.vocabulary
        with torch.inference_mode():
            logits_BTV = torch.nn.functional.linear(expected[FEATURES], vocabulary.table_VD, vocabulary.bias_V)
        expected |= {LOGITS: logits_BTV}
    actual = dict(zip(expected, session.run([*expected], inputs), strict=True))
    return max_abs_difference({name: each.numpy() for name, each in expected.items()}, actual, drawn.visible_BT.numpy())
