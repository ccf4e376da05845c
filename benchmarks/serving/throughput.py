"""Throughput of the server over REST: clients that each ask for one text, and ask again as soon as they are answered.

A stream of texts in all languages against the same texts in one language.
"""

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import httpx

from benchmarks.serving import words
from benchmarks.serving.made import TOPIC, Models
from benchmarks.serving.turns import percentile
from pipelines.endpoint import run_server

MIXED, SINGLE = "mixed languages", "one language"
SHORTEST, LONGEST = 8, 64
CLIENTS = (1, 4, 16, 32)
_TIMEOUT_S = 600


def measured(models: Models, texts: int, rounds: int, clients: Sequence[int] = CLIENTS) -> dict[str, Any]:
    """Texts a second and percentiles of latency, by number of clients and side; medians of rounds in turns."""
    draw, tags = random.Random(texts), models.plan.tags
    longest = min(LONGEST, models.plan.shape.block_tokens)
    drawn = words.texts(models.tokenizer, [draw.randint(SHORTEST, longest) for _ in range(texts)])
    sides = {
        MIXED: list(zip(drawn, itertools.cycle(tags), strict=False)),
        SINGLE: [(text, tags[0]) for text in drawn],
    }
    loads = {}
    with run_server([models.bundle("float32", TOPIC)], ready_s=600) as server:
        for count in clients:
            found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
            for _, (side, asked) in itertools.product(range(rounds), sides.items()):
                found[side].append(asyncio.run(_load(server.url, asked, count)))
            loads[str(count)] = {
                side: {key: statistics.median(each[key] for each in one) for key in one[0]}
                for side, one in found.items()
            }
    return {"texts": texts, "rounds": rounds, "loads": loads}


async def _load(url: str, asked: Sequence[tuple[str, str]], clients: int) -> dict[str, float]:
    """Ask everything once, by so many clients at a time."""
    left, took_ms = iter(asked), list[float]()

    async def client(session: httpx.AsyncClient) -> None:
        for text, language in left:
            named = {"text": text, "language": language}
            inputs = [{"name": key, "shape": [1], "datatype": "BYTES", "data": [each]} for key, each in named.items()]
            began = time.perf_counter()
            (await session.post(f"/v2/models/{TOPIC}/infer", json={"inputs": inputs})).raise_for_status()
            took_ms.append(1000 * (time.perf_counter() - began))

    began = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, trust_env=False) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    elapsed_s = time.perf_counter() - began
    shares = {"p50_ms": percentile(took_ms, 0.5), "p95_ms": percentile(took_ms, 0.95)}
    return {"texts_per_s": len(asked) / elapsed_s} | shares
