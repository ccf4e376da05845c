"""Throughput from texts to labels: our endpoint without its transports, against a Hugging Face pipeline in PyTorch.

The pipeline gets all texts at once and its best batch size, ours all texts as requests of one text each. Both read the
same texts through the same pieces; the models are of one shape, with random weights.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.serving import words
from benchmarks.serving.made import LABELS, TOPIC, Models
from benchmarks.serving.streams import SHORTEST, longest
from lingraft.huggingface.fast_tokenizer import fast_tokenizer, tokenizer_config
from lingraft.ranks import available_cores
from lingraft.serving.endpoint import Endpoint
from lingraft.serving.requests import InferRequest, InputTensor
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings
from lingraft.training.precision import device

BATCHES = (1, 2, 4, 8, 16, 32)
PIPELINE = "pipeline"
TUNED_ON = 64
Side = Callable[[], Any]


def measured(models: Models, texts: int, rounds: int, batches: Sequence[int] = BATCHES) -> dict[str, Any]:
    """Texts a second of both sides, and of the pipeline by batch size; medians of the rounds."""
    torch.set_num_threads(available_cores())
    draw = random.Random(2)
    shortest = min(SHORTEST, models.plan.shape.block_tokens)
    asked = words.texts(models.tokenizer, [draw.randint(shortest, longest(models)) for _ in range(texts)])
    pipe = pipeline(models)
    tuned = {size: _tuned(pipe, asked[:TUNED_ON], size) for size in batches}
    size = max(tuned, key=tuned.__getitem__)
    folder = models.bundle("float32", TOPIC)
    served = {precision: ServedBundles.load([folder], precision) for precision in models.plan.precisions}
    sides: dict[str, Side] = {PIPELINE: lambda: pipe(asked, batch_size=size)}
    for precision, one in served.items():
        sides[precision] = _ours(one, asked)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            found[name].append(len(asked) / _seconds(sides[name]))
    return {
        "texts": texts,
        "rounds": rounds,
        "tokens": sum(len(models.tokenizer.encode(text)) + 2 for text in asked),
        "tuned": {str(each): rate for each, rate in tuned.items()},
        "batch": size,
        "texts_per_s": {name: statistics.median(each) for name, each in found.items()},
    }


def pipeline(models: Models) -> Any:
    """transformers' text classification on RoBERTa of the same shape."""
    import transformers

    shape, pieces = models.plan.shape, models.tokenizer
    config = transformers.RobertaConfig(
        vocab_size=len(pieces),
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.attention_heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.block_tokens + shape.family.position_offset,
        type_vocab_size=1,
        num_labels=len(LABELS),
        pad_token_id=pieces.special.pad,
        bos_token_id=pieces.special.begin,
        eos_token_id=pieces.special.end,
    )
    torch.manual_seed(1)
    model = transformers.RobertaForSequenceClassification(config).eval()
    given = tokenizer_config(pieces, shape)
    given.pop("tokenizer_class")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=fast_tokenizer(pieces, shape), **given)
    return transformers.pipeline("text-classification", model=model, tokenizer=fast, device=device())


def _tuned(pipe: Any, asked: Sequence[str], size: int) -> float:
    pipe(asked[:size], batch_size=size)
    return len(asked) / _seconds(lambda: pipe(asked, batch_size=size))


def _ours(served: ServedBundles, asked: Sequence[str]) -> Side:
    """Texts of all languages in turns, as many requests at once as the server takes."""
    settings = ServingSettings(detect=False)
    languages = list(served[TOPIC].languages)
    requests = [_request(text, languages[place % len(languages)]) for place, text in enumerate(asked)]

    async def answer_all() -> None:
        endpoint = Endpoint(served, settings)
        endpoint.start()
        room = asyncio.Semaphore(settings.requests)

        async def one(request: InferRequest) -> None:
            async with room:
                await endpoint.answer(TOPIC, request)

        await asyncio.gather(*map(one, requests))
        await endpoint.drain()

    return lambda: asyncio.run(answer_all())


def _request(text: str, language: str) -> InferRequest:
    given = {"text": text, "language": language}
    return InferRequest(
        inputs=[InputTensor(name=name, datatype="BYTES", shape=[1], data=[value]) for name, value in given.items()]
    )


def _seconds(side: Side) -> float:
    began = time.perf_counter()
    side()
    return time.perf_counter() - began
