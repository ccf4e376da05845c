"""Differences between ONNX Runtime and PyTorch, in logits and in a task's metric.

Legend: B batch, T tokens.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Draft, Kind
from lingraft.bundle.format import Precision, TableFormat, body_file
from lingraft.bundle.runtime import Body, installed_runtime
from lingraft.bundle.self_test import max_abs_difference
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.errors import ExportError
from lingraft.export.exported_model import ExportedModel, write_bodies
from lingraft.export.language import ExportedLanguage, TokenBatch, random_batch
from lingraft.export.metrics import onnx_outputs, score_language
from lingraft.model.loading import load_embeddings
from lingraft.tasks.model import load_task


def measure_parity(task: Path, embeddings: Path) -> float:
    """Return the largest absolute difference of a logit between ONNX Runtime and PyTorch, for a task in one language.

    Raises:
        AlignmentError: the embeddings belong to another primary than the task.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be.
    """
    installed_runtime()
    model = load_task(task)
    learned = load_embeddings(embeddings)
    model.swap_in(learned)
    exported = ExportedModel.of_task(model)
    with tempfile.TemporaryDirectory() as folder:
        draft = Draft(Path(folder), Kind.BUNDLE)
        write_bodies(draft, exported, ["fp32"])
        return _difference(
            Body.open(draft.folder / body_file("fp32")), exported, ExportedLanguage.from_artifact(learned), "float32"
        )


Parity = dict[str, dict[str, float]]
"""Measurements by language: `difference`, and `score` and `loss` if examples were given."""


def compare_languages(
    folder: Path,
    exported: ExportedModel,
    languages: Sequence[ExportedLanguage],
    precision: Precision,
    table_format: TableFormat,
    examples: Mapping[str, Any],
) -> Parity:
    """Compare an exported body with PyTorch in each language.

    Args:
        folder: folder of the draft, which holds the body.
        exported: model in PyTorch.
        languages: languages to compare.
        precision: precision of the body.
        table_format: number format of the tables.
        examples: rows of the task, or blocks (N, T) for a primary, by language; the metric is measured on them.

    Returns:
        By language: `difference`, the largest absolute difference of an output from PyTorch with the stored table; and,
        if there are examples, `score` and its `loss` against PyTorch with the float32 table, so that the loss
        includes the cost of the table's format.

    Raises:
        ExportError: a difference is above the tolerance in fp32, or not finite.
    """
    opened = Body.open(folder / body_file(precision))
    parity: Parity = {}
    for exported_language in languages:
        language = exported_language.tokenizer.language
        parity[language] = {"difference": _difference(opened, exported, exported_language, table_format)}
        if language in examples:
            parity[language] |= score_language(opened, exported, exported_language, table_format, examples[language])
    require_parity(precision, {language: each["difference"] for language, each in parity.items()})
    return parity


def require_parity(precision: Precision, differences: Mapping[str, float]) -> None:
    """Refuse differences (by language) that are above the tolerance in fp32, or not finite.

    Raises:
        ExportError: a difference is too large; the message lists all of them.
    """
    limit = PARITY_TOLERANCE if precision == "fp32" else float("inf")
    if not all(difference <= limit and difference < float("inf") for difference in differences.values()):
        shown = ", ".join(f"{language} {difference:.2g}" for language, difference in differences.items())
        raise ExportError(
            f"ONNX Runtime and PyTorch differ by more than {limit:g} in a logit of the {precision} body (largest "
            f"difference: {shown}). Nothing was written. Check that the weights are finite and, for fp16, below 65504; "
            "then report it with both versions."
        )


def _difference(
    opened: Body, exported: ExportedModel, exported_language: ExportedLanguage, table_format: TableFormat
) -> float:
    exported.set_vocabulary(exported_language.as_stored(table_format))
    drawn = parity_batch(exported_language, exported)
    expected = {name: answer.numpy() for name, answer in exported.torch_outputs(*drawn).items()}
    return max_abs_difference(expected, onnx_outputs(opened, exported, drawn), drawn.visible_BT.numpy())


def parity_batch(exported_language: ExportedLanguage, exported: ExportedModel) -> TokenBatch:
    """Return random rows from a whole block down to one piece, so that all rows but one are padded."""
    block = exported.shape.block_tokens
    lengths = [max(1, (block - 2) // share) for share in (1, 2, 4, block)]
    return random_batch(len(exported_language.vocabulary), lengths, exported_language.tokenizer.special, exported.shape)
