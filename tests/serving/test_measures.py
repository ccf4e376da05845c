"""What /metrics counts, by the application in this process: nobody else asks it."""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from lingraft.serving.endpoint import Endpoint
from lingraft.serving.rest import mount
from lingraft.serving.served import Served
from lingraft.serving.settings import Settings
from tests.serving.asking import body, infer

INFER = infer("topic")
Send = Callable[..., httpx.Response]


@pytest.fixture
def send(bundle: Path) -> Iterator[Send]:
    """Sends a request to an application of one bundle, by method and path."""
    endpoint, app = Endpoint(Served.load([bundle]), Settings()), FastAPI()
    mount(app, endpoint, None)
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


def test_answers_are_counted_by_path_and_status(send: Send) -> None:
    asked = [(INFER, 200), (INFER, 400), ("elsewhere", 404)]
    names = [f'lingraft_answers_total{{path="{path}",status="{status}"}}' for path, status in asked]
    before = [value(send, name) for name in names]
    assert send("POST", INFER, json=body()).status_code == 200
    assert send("POST", INFER, json=body(languages=["xx"])).status_code == 400
    for path in ("/v2/models/other", "/v2/models/another"):
        assert send("GET", path).status_code == 404
    after = [value(send, name) for name in names]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 2]


def test_texts_are_counted_by_task_and_language(send: Send) -> None:
    names = [f'lingraft_texts_total{{language="{language}",task="topic"}}' for language in ("de", "tr")]
    names += ['lingraft_latency_seconds_count{language="de",task="topic"}', 'lingraft_batch_texts_sum{task="topic"}']
    before = [value(send, name) for name in names]
    assert send("POST", INFER, json=body(["kilo", "ba", "de"], ["de", "tr", "de"])).status_code == 200
    after = [value(send, name) for name in names]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 1, 1, 3]
    assert value(send, 'lingraft_queue_texts{task="topic"}') == 0
