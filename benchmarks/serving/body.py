"""Our body against the graph of torch.onnx's exporter, and against PyTorch, at RoBERTa-base's shape.

    python -m benchmarks.serving.body [--rounds 20] [--out FILE]

From token ids to logits, with random weights; a part of `benchmarks.serving`. `exporter` is the bundle of before:
torch.onnx.export of the classifier with the token table as an input, optimised by ONNX Runtime on its own. All sides
take turns in every round; what is shown is the median of the rounds.

Legend: B batch, T tokens, V vocabulary, D width.
"""

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import torch
from torch import Tensor, nn

from benchmarks.serving.made import BASE
from benchmarks.serving.turns import in_turns, medians
from benchmarks.speed.machine import commit, described
from lingraft.artifacts.artifact import Draft
from lingraft.artifacts.files import write_json
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import Precision, body_file
from lingraft.bundle.runtime import Body
from lingraft.config.encoder import EncoderShape
from lingraft.export.exported_model import ExportedModel, write_bodies
from lingraft.model.encoder import Encoder
from lingraft.ranks import available_cores
from lingraft.tasks.classification import Classifier

BATCHES = (1, 8)
CLASSES = 3
OURS: tuple[Precision, ...] = ("fp32", "int8")
Side = Callable[[Tensor], Any]
"""Logits of token ids (B, T) without padding."""


class _OverTable(nn.Module):
    """The classifier as a function of the table, too."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier.requires_grad_(False)

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor, table_VD: Tensor) -> Tensor:
        given = {"encoder.vocabulary.table_VD": table_VD}
        logits_BC: Tensor = torch.func.functional_call(self.classifier, given, (tokens_BT, visible_BT))
        return logits_BC


def exported_by_torch(classifier: Classifier, folder: Path) -> Path:
    """Write the graph of torch.onnx's exporter, as `lingraft export onnx` did before."""
    shape = classifier.encoder.shape
    tokens_BT = torch.zeros(2, shape.block_tokens // 2, dtype=torch.long)
    batch, vocabulary = torch.export.Dim("batch"), torch.export.Dim("vocabulary")
    tokens = torch.export.Dim("tokens", max=shape.block_tokens)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            _OverTable(classifier),
            (tokens_BT, torch.ones_like(tokens_BT, dtype=torch.bool), torch.zeros(8, shape.width)),
            input_names=["tokens_BT", "visible_BT", "table_VD"],
            output_names=["logits_BC"],
            dynamic_shapes=({0: batch, 1: tokens}, {0: batch, 1: tokens}, {0: vocabulary}),
            opset_version=20,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    onnx_ir.save(program.model, folder / "exporter.onnx", external_data="exporter.data")
    return folder / "exporter.onnx"


def sides(shape: EncoderShape, vocabulary: int, folder: Path) -> Iterator[tuple[str, Side]]:
    """PyTorch, the exporter's graph, and ours in each precision; all of one classifier of random weights."""
    torch.manual_seed(1)
    net = Classifier(Encoder(shape, vocabulary), CLASSES).eval()
    table_VD = net.encoder.vocabulary.table_VD.detach().numpy()

    def eager(tokens_BT: Tensor) -> Tensor:
        with torch.inference_mode():
            return net(tokens_BT, torch.ones_like(tokens_BT, dtype=torch.bool))

    yield "pytorch", eager
    write_bodies(Draft(folder, Kind.BUNDLE), ExportedModel("body", "texts", net, [], None), OURS)
    for precision in OURS:
        yield f"ours {precision}", _ours(Body.open(folder / body_file(precision)), table_VD)
    yield "exporter", _exporter(Body.open(exported_by_torch(net, folder)), table_VD)


def _ours(body: Body, table_VD: np.ndarray) -> Side:
    def run(tokens_BT: Tensor) -> np.ndarray:
        (logits_BC,) = body.run(table_VD[tokens_BT.numpy()], np.ones(tokens_BT.shape, np.bool_)).values()
        return logits_BC

    return run


def _exporter(body: Body, table_VD: np.ndarray) -> Side:
    import onnxruntime

    held = onnxruntime.OrtValue.ortvalue_from_numpy(table_VD)

    def run(tokens_BT: Tensor) -> np.ndarray:
        plain = {"tokens_BT": tokens_BT.numpy(), "visible_BT": np.ones(tokens_BT.shape, np.bool_)}
        given = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in plain.items()}
        (logits_BC,) = body.session.run_with_ort_values(["logits_BC"], given | {"table_VD": held})
        return logits_BC.numpy()

    return run


def measured(given: Mapping[str, Side], tokens_BT: Tensor, rounds: int) -> dict[str, float]:
    """Median milliseconds of each side."""
    return medians(in_turns({name: partial(side, tokens_BT) for name, side in given.items()}, rounds))


def furthest(given: Mapping[str, Side], tokens_BT: Tensor) -> dict[str, float]:
    """Largest difference of each side's logits from PyTorch's."""
    expected = given["pytorch"](tokens_BT).numpy()
    return {name: float(np.abs(np.asarray(side(tokens_BT)) - expected).max()) for name, side in given.items()}


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown: milliseconds, and how many times as fast as PyTorch and as the exporter's graph."""
    lines = ["| batch | side | ms | x PyTorch | x exporter |", "|---:|---|---:|---:|---:|"]
    for batch, each in found.items():
        for name, ms in each.items():
            ratios = f"{each['pytorch'] / ms:.2f} | {each['exporter'] / ms:.2f}"
            lines.append(f"| {batch} | {name} | {ms:.1f} | {ratios} |")
    return "\n".join(lines)


def compared(shape: EncoderShape, vocabulary: int, rounds: int, tokens: int = 128) -> dict[str, Any]:
    """Milliseconds of all sides by batch, and how far each is from PyTorch.

    Args:
        shape: shape of the body.
        vocabulary: rows of the table.
        rounds: number of times that each side is measured.
        tokens: length of each text.
    """
    torch.set_num_threads(available_cores())
    tokens = min(tokens, shape.block_tokens)
    with tempfile.TemporaryDirectory() as folder:
        given = dict(sides(shape, vocabulary, Path(folder)))
        found, far = {}, {}
        for batch in BATCHES:
            tokens_BT = torch.randint(5, vocabulary, (batch, tokens))
            far[str(batch)] = furthest(given, tokens_BT)
            found[str(batch)] = measured(given, tokens_BT, rounds)
    return {"rounds": rounds, "tokens": tokens, "ms": found, "furthest_logit": far}


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="times that each side is measured")
    parser.add_argument("--tokens", type=int, default=128, help="of each text")
    parser.add_argument("--vocabulary", type=int, default=50_000, help="rows of the table")
    parser.add_argument("--out", type=Path, help="JSON of all numbers")
    given = parser.parse_args()
    found = compared(BASE, given.vocabulary, given.rounds, given.tokens)
    print(table(found["ms"]))
    if given.out:
        write_json(given.out, {"machine": described(), "commit": commit()} | found)


if __name__ == "__main__":
    main()
