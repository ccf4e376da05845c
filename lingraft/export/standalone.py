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
from lingraft.export.exported_model import ExportedModel
from lingraft.export.graph_builder import Graph
from lingraft.export.heads import Outputs
from lingraft.export.language import ExportedLanguage, table_tensors
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
    language's table (`<language>.safetensors`) and tokenizer besides, and the body's weights, which all models share. A
    primary's tables are float32, since logits are products with the whole table.

    Returns:
        Largest absolute difference of an output from PyTorch, by language.
    """
    installed_runtime()
    exported, sources, _ = load_sources(primary, task, embeddings)
    if exported.kind == PRIMARY and tables != "float32":
        raise ExportError(f"a primary's standalone models have float32 tables, not {tables}. Leave the format out.")
    differences: dict[str, float] = {}
    lender = None
    with atomic_folder(out) as folder:
        for tag, source in sources.items():
            language = ExportedLanguage.from_artifact(source, tables, lender)
            lender = lender or language  # the source language is the first
            tokenizer_file = language.tokenizer.model
            shutil.copyfile(tokenizer_file, folder / f"{tag}.{tokenizer_file.name}")
            model = write_standalone_model(folder, exported, language, precision)
            differences[tag] = _difference(model, exported, language)
        require_parity(precision, differences)
    return differences


def write_standalone_model(
    folder: Path, exported: ExportedModel, language: ExportedLanguage, precision: Precision = "fp32"
) -> Path:
    """Write one language's model with its weights, and return its file; body weights that exist are kept."""
    graph = Graph(body_part(precision))
    outputs = _add_nodes(graph, exported, language, precision)
    for part, tensors in graph.parts.items():
        if not (file := folder / f"{part}.safetensors").exists():
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    file = folder / f"{language.tag}.onnx"
    graph.save(file, outputs, {**exported.metadata, "language": language.tag})
    return file


def _add_nodes(graph: Graph, exported: ExportedModel, language: ExportedLanguage, precision: Precision) -> Outputs:
    size = ["batch", "tokens"]
    ids, mask = (graph.input(name, torch.int64, size) for name in (IDS, MASK))
    types = graph.input(TYPE_IDS, torch.int64, size) if exported.shape.family.segments else None
    table_VD, bias_V = language.vocabulary.whole()
    stored = table_tensors(table_VD, language.table_format)
    table = {name: graph.weight(name, tensor, language.tag) for name, tensor in stored.items()}
    inputs = BodyInputs(_add_embedding_lookup(graph, table, ids), graph.cast(mask, torch.bool), types)
    outputs = exported.add_nodes(graph, inputs, precision)
    if exported.kind != PRIMARY:
        return outputs
    bias = graph.weight(BIAS, bias_V, language.tag)
    products = graph.fused("FusedMatMul", outputs[FEATURES][0], table[TABLE], transB=1)
    return {**outputs, LOGITS: (graph.op("Add", products, bias), [*size, len(language.vocabulary)])}


def _add_embedding_lookup(graph: Graph, table: dict[str, onnx_ir.Value], ids: onnx_ir.Value) -> onnx_ir.Value:
    """Add the rows (B, T, D) of token ids, in float32."""
    embedded = graph.op("Gather", table[TABLE], ids)
    if table[TABLE].dtype == onnx_ir.DataType.FLOAT:
        return embedded
    embedded = graph.cast(embedded, torch.float32)
    if SCALE not in table:
        return embedded
    scales = graph.op("Unsqueeze", graph.op("Gather", table[SCALE], ids), graph.constant([-1]))
    return graph.op("Mul", embedded, scales)


def _difference(model: Path, exported: ExportedModel, language: ExportedLanguage) -> float:
    exported.set_vocabulary(language.as_stored())
    batch = parity_batch(language, exported)
    inputs = {IDS: batch.tokens_BT.numpy(), MASK: batch.visible_BT.long().numpy()}
    if exported.shape.family.segments:
        types_BT = torch.zeros_like(batch.tokens_BT) if batch.types_BT is None else batch.types_BT
        inputs[TYPE_IDS] = types_BT.numpy()
    expected = exported.torch_outputs(batch)
    if exported.kind == PRIMARY:
        with torch.inference_mode():
            logits_BTV = exported.encoder.vocabulary.logits(expected[FEATURES])
        expected |= {LOGITS: logits_BTV}
    actual = dict(zip(expected, Body.open(model).session.run([*expected], inputs), strict=True))
    return max_abs_difference({name: each.numpy() for name, each in expected.items()}, actual, batch.visible_BT.numpy())
