"""The application in this process, without a server: for what needs settings of its own, or nobody else's requests."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.server import RESTServer

from lingraft.data.language_detection import LanguageDetector
from lingraft.serving.model import ServingContext
from lingraft.serving.repository import Repository
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.server import mount
from lingraft.serving.settings import ServingSettings

Send = Callable[..., httpx.Response]


@contextmanager
def sending(
    bundles: Sequence[Path], detector: LanguageDetector | None = None, token: str | None = None, **settings: Any
) -> Iterator[Send]:
    """Yield what sends a request, by method and path, to an application that serves bundles by some settings."""
    served, app, given = ServedBundles.load(bundles), FastAPI(), ServingSettings(**settings)
    repository = Repository(served, ServingContext(served.bundles, given, detector))
    mount(app, repository, given, token)
    rest = RESTServer("", DataPlane(repository), ModelRepositoryExtension(repository), given.port)
    rest._register_endpoints(app)
    rest._add_exception_handlers(app)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here")
    with asyncio.Runner() as runner:

        def sent(method: str, path: str, **given: Any) -> httpx.Response:
            return runner.run(client.request(method, path, **given))

        yield sent
        runner.run(client.aclose())


def value(send: Send, metric: str) -> float:
    found = re.search(rf"^{re.escape(metric)} (.*)$", send("GET", "/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0
