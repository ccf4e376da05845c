"""Latency and texts a second of the endpoint beside sentence-transformers with the same body.

Each side goes from texts to vectors in this process, with as many threads, and all take turns. The endpoint has one
bundle of all languages, and answers without its transports: with its checks, tokenizing, queue and answers.
sentence-transformers has a model of each language, and embeds what a batch has of each. It runs in PyTorch with fused
attention, and in ONNX Runtime on the graph that PyTorch exports of its encoder. Its own ONNX backend does that, but
needs a package that does not install beside transformers 5.
"""

import asyncio
import itertools
import random
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir
import torch
from numpy.typing import NDArray

from benchmarks.embedding_model.made import PRECISIONS, TASK, Models
from benchmarks.serving import words
from benchmarks.serving.turns import in_turns, percentile
from lingraft.bundle.runtime import Body
from lingraft.ranks import available_cores
from lingraft.serving.handlers.rows import EMBEDDING
from lingraft.serving.model import EndpointModel, ServingContext
from lingraft.serving.requests import validate
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.served_models import served_models
from lingraft.serving.settings import ServingSettings

TORCH, ONNX = "sentence-transformers, PyTorch", "sentence-transformers, ONNX Runtime"
OURS = {precision: f"endpoint, {precision} body" for precision in PRECISIONS}
ONE, MIXED, SINGLE = "one text", "batch, all languages", "batch, one language"
BATCH_TEXTS = 32
QUERY_TOKENS, TEXT_TOKENS = (8, 24), (8, 64)
"""Tokens of a lone query, and of a text in a batch; all lengths between them alike."""
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_TABLE = "encoder.embeddings.word_embeddings.weight"
_TRIED = (1, 4, 8, 16, 32)
"""Batch sizes of sentence-transformers, of which it has the fastest."""
Vectors = NDArray[np.float32]


class Batch(NamedTuple):
    """Texts that are embedded at once, and their languages."""

    texts: list[str]
    languages: list[str]


Side = Callable[[Batch], Vectors]


def measured(models: Models, rounds: int, batches: int) -> dict[str, Any]:
    """Return milliseconds and texts a second, by kind of batch and side; and how far vectors differ.

    Args:
        models: the models.
        rounds: queries of one text.
        batches: batches of each kind.
    """
    torch.set_num_threads(available_cores())
    batched = _batches(models, batches, BATCH_TEXTS, TEXT_TOKENS)
    asked = {
        ONE: _batches(models, rounds, 1, QUERY_TOKENS),
        MIXED: batched,
        SINGLE: [Batch(each.texts, each.languages[:1] * len(each.texts)) for each in batched],
    }
    peers = {TORCH: PyTorchModels(models), ONNX: OnnxModels(models)}
    tuned = {name: _tuned(peer, batched[0]) for name, peer in peers.items()}
    with asyncio.Runner() as runner:
        sides: dict[str, Side] = {OURS[each]: _endpoint(models, each, runner.get_loop()) for each in PRECISIONS}
        sides |= {name: peer.encode for name, peer in peers.items()}
        expected_NE = sides[TORCH](batched[0])
        return {
            "rounds": rounds,
            "batches": batches,
            "batch_sizes": tuned,
            "difference": {name: float(np.abs(side(batched[0]) - expected_NE).max()) for name, side in sides.items()},
            "cases": {name: _case(sides, given) for name, given in asked.items()},
        }


class PyTorchModels:
    """A model of sentence-transformers for each language."""

    def __init__(self, models: Models) -> None:
        from sentence_transformers import SentenceTransformer

        self.batch_size = BATCH_TEXTS
        self._by_language = {
            tag: SentenceTransformer(
                str(models.sentence_transformer(tag)), device="cpu", model_kwargs={"attn_implementation": "sdpa"}
            )
            for tag in models.plan.tags
        }
        for tag, model in self._by_language.items():
            self.prepare(model, models.sentence_transformer(tag))

    def prepare(self, model: Any, folder: Path) -> None:
        """Change a model that has been loaded."""

    def encode(self, batch: Batch) -> Vectors:
        """Embed what a batch has of each language."""
        places = defaultdict(list)
        for place, language in enumerate(batch.languages):
            places[language].append(place)
        parts = [
            self._by_language[language].encode(
                [batch.texts[place] for place in chosen], batch_size=self.batch_size, show_progress_bar=False
            )
            for language, chosen in places.items()
        ]
        vectors_NE = np.empty((len(batch.texts), parts[0].shape[1]), np.float32)
        for chosen, part in zip(places.values(), parts, strict=True):
            vectors_NE[chosen] = part
        return vectors_NE


class OnnxModels(PyTorchModels):
    """Models of sentence-transformers whose encoders run in ONNX Runtime."""

    _graph: onnx_ir.Model | None = None

    def prepare(self, model: Any, folder: Path) -> None:
        """Put ONNX Runtime in the place of the encoder's forward pass."""
        encoder = model[0].model
        # Models differ in their tables alone.
        self._graph = self._graph or _export(encoder)
        self._graph.graph.initializers[_TABLE].const_value = onnx_ir.tensor(
            encoder.embeddings.word_embeddings.weight.detach().numpy(), name=_TABLE
        )
        file = folder.with_suffix(".onnx")
        onnx_ir.save(self._graph, file)
        session = Body.open(file).session

        def forward(**given: Any) -> Mapping[str, torch.Tensor]:
            inputs = {name: given[name].numpy() for name in _INPUTS}
            return {"last_hidden_state": torch.from_numpy(session.run(None, inputs)[0])}

        encoder.forward = forward


class _Encoder(torch.nn.Module):
    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        hidden_BTD: torch.Tensor = self.encoder(**dict(zip(_INPUTS, inputs, strict=True))).last_hidden_state
        return hidden_BTD


def _export(encoder: Any) -> onnx_ir.Model:
    """Return the graph that PyTorch exports of an encoder of transformers."""
    ids_BT = torch.ones(2, 8, dtype=torch.long)
    # Without padding, the graph would have no mask.
    mask_BT = ids_BT.tril(6)
    tokens = torch.export.Dim("tokens", max=encoder.config.max_position_embeddings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            _Encoder(encoder).eval(),
            (ids_BT, mask_BT, torch.zeros_like(ids_BT)),
            input_names=[*_INPUTS],
            dynamic_shapes=(({0: torch.export.Dim("batch"), 1: tokens},) * len(_INPUTS),),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model


def _endpoint(models: Models, precision: Any, loop: asyncio.AbstractEventLoop) -> Side:
    served, settings = ServedBundles.load([models.bundle("float32")], precision), ServingSettings(detect=False)
    model = EndpointModel(TASK.name, served_models(served.bundles)[TASK.name], ServingContext(served.bundles, settings))

    def encode(batch: Batch) -> Vectors:
        request = validate(
            texts={"text": batch.texts},
            languages=batch.languages,
            parameters={},
            outputs=[EMBEDDING],
            model=model.served,
            settings=settings,
        )
        ((_, vectors_NE),) = loop.run_until_complete(model.answer(request)).outputs
        return vectors_NE

    return encode


def _batches(models: Models, count: int, texts: int, tokens: tuple[int, int]) -> list[Batch]:
    """Draw batches of texts, whose languages take turns."""
    draw = random.Random(texts)
    shortest, longest = (min(each, models.plan.shape.block_tokens) for each in tokens)
    drawn = iter(words.texts(models.tokenizer, [draw.randint(shortest, longest) for _ in range(count * texts)], texts))
    languages = itertools.cycle(models.plan.tags)
    return [Batch([*itertools.islice(drawn, texts)], [*itertools.islice(languages, texts)]) for _ in range(count)]


def _tuned(peer: PyTorchModels, batch: Batch) -> int:
    """Choose the batch size that is fastest, on texts of one language."""
    single = Batch(batch.texts, batch.languages[:1] * len(batch.texts))

    def side(size: int) -> Callable[[], Vectors]:
        def run() -> Vectors:
            peer.batch_size = size
            return peer.encode(single)

        return run

    found = in_turns({str(size): side(size) for size in _TRIED}, 3)
    peer.batch_size = int(min(found, key=lambda size: statistics.median(found[size])))
    return peer.batch_size


def _case(sides: Mapping[str, Side], asked: Sequence[Batch]) -> dict[str, dict[str, float]]:
    """Time all sides on the same batches in turns."""

    def turn(side: Side) -> Callable[[], Vectors]:
        # The first run is not timed.
        batches: Iterator[Batch] = itertools.chain(asked[:1], asked)
        return lambda: side(next(batches))

    found = in_turns({name: turn(side) for name, side in sides.items()}, len(asked))
    texts = len(asked[0].texts)
    # Rates are of the median: other work on the machine stretches some batches.
    middle = {name: percentile(each, 0.5) for name, each in found.items()}
    return {
        name: {
            "p50_ms": middle[name],
            "p95_ms": percentile(each, 0.95),
            "texts_per_s": 1000 * texts / middle[name],
        }
        for name, each in found.items()
    }
