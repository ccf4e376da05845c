"""What /metrics counts, by the application in this process: nobody else asks it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.applications import Send, sending, value
from tests.serving.asking import body, infer

INFER = infer("topic")


@pytest.fixture
def send(bundle: Path) -> Iterator[Send]:
    with sending([bundle]) as found:
        yield found


def test_answers_are_counted_by_path_and_status(send: Send) -> None:
    asked = [("/v2/models/{model_name}/infer", 200), ("/v2/models/{model_name}/infer", 400), ("elsewhere", 404)]
    names = [f'lingraft_answers_total{{path="{path}",status="{status}"}}' for path, status in asked]
    before = [value(send, name) for name in names]
    assert send("POST", INFER, json=body()).status_code == 200
    assert send("POST", INFER, json=body(languages=["xx"])).status_code == 400
    for path in ("/v2/other", "/v2/another"):
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
