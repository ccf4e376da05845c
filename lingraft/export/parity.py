"""Differences between ONNX Runtime and PyTorch, in logits and in a task's metric, and examples that show them.

Legend: B batch, T tokens, M masked tokens, N blocks, D width.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.artifacts.artifact import Artifact, Draft, require_aligned
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import FEATURES, OUTPUTS, Precision, body_file
from lingraft.bundle.runtime import Body, installed_runtime
from lingraft.bundle.self_test import max_abs_difference
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.data.blocks import open_split
from lingraft.errors import ExportError
from lingraft.export.exported_model import ExportedModel, TokenBatch, write_bodies
from lingraft.export.language import ExportedLanguage
from lingraft.model.encoder import Encoder
from lingraft.model.loading import load_embeddings
from lingraft.tasks.examples import load_examples
from lingraft.tasks.finetuned import load_task
from lingraft.training import masked_lm

Parity = dict[str, dict[str, float]]
"""Measurements by language: `difference`, and `score` and `loss` if examples were given."""


def measure_parity(task: Path, embeddings: Path) -> float:
    """Return the largest absolute difference of a logit between ONNX Runtime and PyTorch, for a task in one language.

    Texts are of the language's own pieces: rows of borrowed ones are the primary's.
    """
    installed_runtime()
    model = load_task(task)
    learned = load_embeddings(embeddings)
    require_aligned(f"embeddings of {learned.language!r}", learned.aligned_with, model.aligned_with)
    exported = ExportedModel.of_task(model)
    with tempfile.TemporaryDirectory() as folder:
        draft = Draft(Path(folder), Kind.BUNDLE)
        write_bodies(draft, exported, ["fp32"])
        body = Body.open(draft.folder / body_file("fp32"))
        return _difference(body, exported, ExportedLanguage.from_artifact(learned, "float32"))


def compare_languages(
    folder: Path,
    exported: ExportedModel,
    languages: Sequence[ExportedLanguage],
    precision: Precision,
    examples: Mapping[str, Any] | None = None,
) -> Parity:
    """Compare an exported body with PyTorch in each language.

    `examples` are those of `export_bundle`.

    Returns:
        By language: `difference`, the largest absolute difference of an output from PyTorch with the stored table; and,
        if there are examples, `score`, the metric under ONNX Runtime, and `loss`, by how much PyTorch with the float32
        table is above it, so that the loss includes the cost of the table's format.
    """
    body = Body.open(folder / body_file(precision))
    parity: Parity = {}
    for language in languages:
        parity[language.tag] = {"difference": _difference(body, exported, language)}
        if examples and language.tag in examples:
            parity[language.tag] |= _scores(body, exported, language, examples[language.tag])
    require_parity(precision, {tag: each["difference"] for tag, each in parity.items()})
    return parity


def evaluation_examples(
    task: Path | None, embeddings: Sequence[Path], texts: Sequence[Path], blocks: Sequence[Path] = ()
) -> dict[str, Any]:
    """Load test examples by language: of the source and all target languages that the task covers.

    Without `task` the primary itself is judged, on `blocks`; a task of kind 'documents' is judged on `texts`.

    Returns:
        Rows of the task, or blocks (N, T) of token ids for a primary, by language.
    """
    blocks_by_language = _by_language(blocks, Kind.BLOCKS)
    if task is None:
        if texts or not blocks_by_language:
            raise ExportError("a primary is judged on blocks. Give --blocks once a language, and no --text.")
        return {language: open_split(one, "test").all() for language, one in blocks_by_language.items()}
    model = load_task(task)
    settings = model.settings
    texts_by_language = _by_language(texts, Kind.TEXT)
    if blocks_by_language or (texts_by_language and not settings.reads_text):
        raise ExportError(f"task {model.name!r} is judged on its own examples. Leave --blocks and --text out.")
    if settings.reads_text:
        if not texts_by_language:
            raise ExportError(f"task {model.name!r} takes its examples from text. Give --text once a language.")
        return {tag: load_examples(settings, "test", tag, text) for tag, text in texts_by_language.items()}
    tags = [str(model.manifest.language), *(load_embeddings(folder).language for folder in embeddings)]
    return {tag: load_examples(settings, "test", tag, None) for tag in tags if settings.covers(tag)}


def _by_language(folders: Sequence[Path], kind: Kind) -> dict[str, Artifact]:
    found = [Artifact.load(folder, kind) for folder in folders]
    languages = [str(one.manifest.language) for one in found]
    if len(set(languages)) < len(languages):
        raise ExportError(f"{kind} are of {languages}: give one for each language.")
    return dict(zip(languages, found, strict=True))


def require_parity(precision: Precision, differences: Mapping[str, float]) -> None:
    """Refuse differences (by language) that are above the tolerance in fp32, or not finite."""
    limit = PARITY_TOLERANCE if precision == "fp32" else float("inf")
    if not all(difference <= limit and difference < float("inf") for difference in differences.values()):
        shown = ", ".join(f"{tag} {difference:.2g}" for tag, difference in differences.items())
        raise ExportError(
            f"ONNX Runtime and PyTorch differ by more than {limit:g} in a logit of the {precision} body (largest "
            f"difference: {shown}). Nothing was written. Check that the weights are finite and, for fp16, below 65504; "
            "then report it with both versions."
        )


def parity_batch(language: ExportedLanguage, exported: ExportedModel) -> TokenBatch:
    """Return random rows from a whole block down to one piece, so that all rows but one are padded."""
    block = exported.shape.block_tokens
    return language.random_batch(exported, [max(1, (block - 2) // share) for share in (1, 2, 4, block)])


def _difference(body: Body, exported: ExportedModel, language: ExportedLanguage) -> float:
    exported.set_vocabulary(language.as_stored())
    batch = parity_batch(language, exported)
    expected = {name: output.numpy() for name, output in exported.torch_outputs(batch).items()}
    return max_abs_difference(expected, _onnx_outputs(body, exported, batch), batch.visible_BT.numpy())


def _scores(body: Body, exported: ExportedModel, language: ExportedLanguage, rows: Any) -> dict[str, float]:
    exported.set_vocabulary(language.vocabulary)
    torch_score = _score(exported, exported.net, language, rows)
    exported.set_vocabulary(language.as_stored())
    net = _OnnxNet(body, exported) if exported.task else _OnnxEncoder(body, exported)
    score = _score(exported, net, language, rows)
    return {"score": score, "loss": torch_score - score}


def _score(exported: ExportedModel, net: Any, language: ExportedLanguage, rows: Any) -> float:
    if exported.task is None:
        top = exported.shape.layers
        return masked_lm.accuracy(net, rows, (top,))[top]
    data = exported.task.prepare(rows, exported.labels, language.tokenizer, exported.shape)
    return exported.task.judge(net, data, language.tag).score


def _onnx_outputs(body: Body, exported: ExportedModel, batch: TokenBatch) -> dict[str, Any]:
    """Compute the outputs with ONNX Runtime, from the vocabulary that the PyTorch model has at the moment."""
    embedded_BTD = exported.encoder.vocabulary.lookup(batch.tokens_BT).detach()
    types_BT = torch.zeros_like(batch.tokens_BT) if batch.types_BT is None else batch.types_BT
    return body.run(embedded_BTD.numpy(), batch.visible_BT.numpy(), types_BT.numpy() if body.has_segments else None)


class _OnnxNet(nn.Module):
    """A body in ONNX Runtime with the interface of a `TaskNet`, so that a task's kind evaluates it like PyTorch's."""

    def __init__(self, body: Body, exported: ExportedModel) -> None:
        super().__init__()
        self.encoder, self.width = exported.encoder, exported.net.width
        self._body = body
        self._exported = exported

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
        (name,) = OUTPUTS[self._exported.kind]
        outputs = _onnx_outputs(self._body, self._exported, TokenBatch(tokens_BT, visible_BT, types_BT))
        return torch.from_numpy(outputs[name])


class _OnnxEncoder(Encoder):
    """A primary in ONNX Runtime with the interface of an `Encoder`, so that it is evaluated on masked tokens."""

    def __init__(self, body: Body, exported: ExportedModel) -> None:
        with torch.device("meta"):
            super().__init__(exported.shape, 0)
        self.vocabulary = exported.encoder.vocabulary
        self._body = body
        self._exported = exported

    def masked_logits(
        self, tokens_BT: Tensor, positions_M: Tensor, depths: Iterable[int], visible_BT: Tensor | None = None
    ) -> dict[int, Tensor]:
        visible_BT = torch.ones_like(tokens_BT, dtype=torch.bool) if visible_BT is None else visible_BT
        features_BTD = _onnx_outputs(self._body, self._exported, TokenBatch(tokens_BT, visible_BT, None))[FEATURES]
        features_MD = torch.from_numpy(features_BTD).flatten(0, 1)[positions_M]
        return {self.shape.layers: self.vocabulary.logits(features_MD)}
