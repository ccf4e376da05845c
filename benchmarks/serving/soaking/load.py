"""The load generator: `python -m benchmarks.serving.soaking.load PLAN`, a process of its own that is told what to do.

    {"do": "closed", "clients": 16, "seconds": 20}    so many clients, each of which asks again once it is answered
    {"do": "open", "rate": 100.0}                     Poisson arrivals, whatever the answers take, until told otherwise
    {"do": "ask", "languages": ["en", "de"]}          in these from now on; said once no request in others is under way
    {"do": "end"}

One line of JSON each on standard input, answered by one on standard output. Every answer is a line of the plan's
`records`.
"""

import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.serving.soaking.answers import Answer, Asked, Versions
from benchmarks.serving.soaking.protocols import Grpc, Rest

_MOST_TEXTS = 4


class Generator:
    """Asks for texts at random, in languages that may be asked for."""

    def __init__(self, plan: dict[str, Any], protocols: list[Rest | Grpc], records: TextIO) -> None:
        expected = {
            language: {name: np.array(values, np.float32) for name, values in said.items()}
            for language, said in plan["expected"].items()
        }
        self._texts, self._versions = plan["texts"], Versions(expected, plan["labels"])
        self._languages: list[str] = plan["languages"]
        self._protocols, self._records = protocols, records
        self._draw = random.Random(plan["seed"])
        self._under_way: set[asyncio.Task[None]] = set()
        self._speaking: Counter[str] = Counter()
        self._finished = asyncio.Event()
        self._arriving: asyncio.Task[None] | None = None

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do as told; returns what is to be said of it."""
        match order:
            case {"do": "closed", "clients": clients, "seconds": seconds}:
                return await self._closed(clients, seconds)
            case {"do": "open", "rate": rate}:
                self._arriving = asyncio.create_task(self._arrive(rate))
                return {}
            case {"do": "ask", "languages": languages}:
                dropped = set(self._languages) - set(languages)
                self._languages = languages
                await self._until_none(dropped)
                return {}
            case {"do": "end"}:
                return await self._end()
        raise ValueError(f"no such order: {order}")

    async def _closed(self, clients: int, seconds: float) -> dict[str, Any]:
        began_s, answers = time.monotonic(), 0

        async def client() -> None:
            nonlocal answers
            while time.monotonic() < began_s + seconds:
                await self._ask(time.monotonic())
                answers += 1

        await asyncio.gather(*(client() for _ in range(clients)))
        return {"answers": answers, "elapsed_s": time.monotonic() - began_s}

    async def _arrive(self, rate: float) -> None:
        due_s = time.monotonic()
        while True:
            due_s += self._draw.expovariate(rate)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            task = asyncio.create_task(self._ask(due_s))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _until_none(self, languages: set[str]) -> None:
        while any(self._speaking[language] for language in languages):
            self._finished.clear()
            await self._finished.wait()

    async def _end(self) -> dict[str, Any]:
        if self._arriving:
            self._arriving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._arriving
        await asyncio.gather(*self._under_way)
        self._records.flush()
        return {}

    async def _ask(self, due_s: float) -> None:
        spoken = self._draw.choices(self._languages, k=self._draw.randint(1, _MOST_TEXTS))
        asked = Asked(spoken, [self._draw.randrange(len(self._texts[language])) for language in spoken])
        protocol = self._draw.choice(self._protocols)
        with self._speaks(set(spoken)):
            sent_s, failed, versions = time.monotonic(), None, {}
            texts = [self._texts[language][number] for language, number in zip(*asked, strict=True)]
            said = await protocol.ask(texts, spoken)
            done_s = time.monotonic()
            if isinstance(said, str):
                failed = said
            else:
                versions = self._versions.of(asked, said)
        answer = Answer(by=protocol.name, due_s=due_s, sent_s=sent_s, done_s=done_s, failed=failed, versions=versions)
        self._records.write(answer.line + "\n")

    @contextlib.contextmanager
    def _speaks(self, languages: set[str]) -> Iterator[None]:
        self._speaking.update(languages)
        try:
            yield
        finally:
            self._speaking.subtract(languages)
            self._finished.set()


async def main(plan: dict[str, Any]) -> None:
    """Obey until told to end."""
    loop = asyncio.get_running_loop()
    with Path(plan["records"]).open("w", buffering=1, encoding="utf-8") as records:
        model, at_once = plan["model"], plan["at_once"]
        async with Rest(plan["url"], model, at_once) as rest, Grpc(plan["grpc"], model, at_once) as grpc:
            generator, ended = Generator(plan, [rest, grpc], records), False
            print(json.dumps({"ready": True}), flush=True)
            while not ended and (line := await loop.run_in_executor(None, sys.stdin.readline)):
                order = json.loads(line)
                print(json.dumps(await generator.obey(order)), flush=True)
                ended = order["do"] == "end"


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
