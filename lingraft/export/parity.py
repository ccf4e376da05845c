"""How near ONNX Runtime comes to PyTorch, in logits and in a task's metric.

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
    """Largest absolute difference of a logit between ONNX Runtime and PyTorch, with one language put into a task.

    Raises:
        AlignmentError: the embeddings belong to another primary than the task.
        MissingExtraError: ONNX Runtime is not installed.
        ServingError: two ONNX Runtimes are installed.
        ArtifactError: an input is not what it should be.
    """
    installed_runtime()
    model, brought = load_task(task), load_embeddings(embeddings)
    model.swap_in(brought)
    exported = ExportedModel.of_task(model)
    with tempfile.TemporaryDirectory() as folder:
        draft = Draft(Path(folder), Kind.BUNDLE)
        write_bodies(draft, exported, ["fp32"])
        return _difference(
            Body.open(draft.folder / body_file("fp32")), exported, ExportedLanguage.from_artifact(brought), "float32"
        )


Parity = dict[str, dict[str, float]]
"""By language: `difference`, and where rows were given `score` and `loss`."""


def compare_languages(
    folder: Path,
    exported: ExportedModel,
    languages: Sequence[ExportedLanguage],
    precision: Precision,
    table_format: TableFormat,
    examples: Mapping[str, Any],
) -> Parity:
    """Compare a body that was written with PyTorch, in each language.

    Args:
        folder: of the draft.
        exported: what PyTorch computes.
        languages: with their tables.
        precision: of the body.
        table_format: of the tables. The difference is that from PyTorch with the table as stored.
        examples: by language, what is judged by the metric: rows of the task, or blocks of a primary. The loss is that
            from PyTorch with the table as it was learned, so that it holds what the table's format costs, too.

    Returns:
        By language: `difference`, the largest of an output; and, where rows were given, the `score` and the `loss`.

    Raises:
        ExportError: a difference is above the tolerance (in fp32), or not a number.
    """
    opened = Body.open(folder / body_file(precision))
    found: Parity = {}
    for brought in languages:
        language = brought.tokenizer.language
        found[language] = {"difference": _difference(opened, exported, brought, table_format)}
        if language in examples:
            found[language] |= score_language(opened, exported, brought, table_format, examples[language])
    require_parity(precision, {language: each["difference"] for language, each in found.items()})
    return found


def require_parity(precision: Precision, found: Mapping[str, float]) -> None:
    """Refuse differences, by language, that are above the tolerance (in fp32), or not a number.

    Raises:
        ExportError: the message has all of them.
    """
    limit = PARITY_TOLERANCE if precision == "fp32" else float("inf")
    if not all(difference <= limit and difference < float("inf") for difference in found.values()):
        shown = ", ".join(f"{language} {difference:.2g}" for language, difference in found.items())
        raise ExportError(
            f"ONNX Runtime and PyTorch differ by more than {limit:g} in a logit of the {precision} body (largest "
            f"difference: {shown}). Nothing was written. Check that the weights are finite and, for fp16, below 65504; "
            "then report it with both versions."
        )


def _difference(opened: Body, exported: ExportedModel, brought: ExportedLanguage, table_format: TableFormat) -> float:
    exported.set_vocabulary(brought.as_stored(table_format))
    drawn = parity_batch(brought, exported)
    expected = {name: answer.numpy() for name, answer in exported.torch_outputs(*drawn).items()}
    return max_abs_difference(expected, onnx_outputs(opened, exported, drawn), drawn.visible_BT.numpy())


def parity_batch(brought: ExportedLanguage, exported: ExportedModel) -> TokenBatch:
    """Rows from a whole block down to one piece, so that all rows but one are padded."""
    block = exported.shape.block_tokens
    lengths = [max(1, (block - 2) // share) for share in (1, 2, 4, block)]
    return random_batch(len(brought.vocabulary), lengths, brought.tokenizer.special, exported.shape)
