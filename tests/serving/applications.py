"""The application in this process, without a server: for what needs settings of its own, or nobody else's requests."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from lingraft.data.language_detection import LanguageDetector
from lingraft.serving.endpoint import Endpoint
from lingraft.serving.repository import Repository
from lingraft.serving.rest import mount
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings

Send = Callable[..., httpx.Response]


@contextmanager
def sending(
    bundles: Sequence[Path], detector: LanguageDetector | None = None, token: str | None = None, **settings: Any
) -> Iterator[Send]:
    """Yield what sends a request, by method and path, to an application that serves bundles by some settings."""
    endpoint, app = Endpoint(ServedBundles.load(bundles), ServingSettings(**settings), detector), FastAPI()
    folder = endpoint.settings.repository
    mount(app, endpoint, token, Repository(endpoint.served, folder, None) if folder else None)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here")

    async def start() -> None:
        endpoint.start()

    async def stop() -> None:
        await endpoint.drain()
        await client.aclose()

    with asyncio.Runner() as runner:
        runner.run(start())

        def sent(method: str, path: str, **given: Any) -> httpx.Response:
            return runner.run(client.request(method, path, **given))

        yield sent
        runner.run(stop())


def value(send: Send, metric: str) -> float:
    found = re.search(rf"^{re.escape(metric)} (.*)$", send("GET", "/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0
