import shutil
from pathlib import Path

import numpy as np
import pytest

from lingraft.errors import RequestError, ServingError
from pipelines.endpoint import embed, predict, run_server
from tests.serving.kinds import WIDTH
from tests.serving.shared import SharedServer


def test_a_refusal_comes_back_in_the_server_s_words(open_server: SharedServer) -> None:
    with pytest.raises(RequestError, match=r"text 0 is in language 'fr'.* speaks \['de', 'en', 'tr'\]"):
        predict(open_server.url, "topic", {"text": "kilo"}, "fr")


def test_many_texts_are_split_by_the_server_and_come_back_in_order(open_server: SharedServer) -> None:
    texts = [f"kilo {'ba ' * (number % 5)}" for number in range(150)]
    languages = [("de", "tr")[number % 2] for number in range(150)]
    found = embed(open_server.url, texts, languages, "search", "query")
    assert found.shape == (150, WIDTH)
    for number in (0, 63, 64, 149):
        (alone,) = embed(open_server.url, [texts[number]], languages[number], "search", "query")
        np.testing.assert_allclose(found[number], alone, rtol=0, atol=1e-6)
    assert embed(open_server.url, texts, "de", "search").shape == (150, WIDTH)
    with pytest.raises(RequestError, match="refused the texts"):
        embed(open_server.url, texts, languages[:64], "search")
    with pytest.raises(RequestError, match="refused the texts: input must be"):
        embed(open_server.url, [], "de", "search")


def test_a_server_that_cannot_start_is_reported_with_its_log(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    (tmp_path / "bundle" / "body.onnx").unlink()
    with pytest.raises(ServingError, match=r"status 1.*\n.*ArtifactError: .* lacks \['body.onnx'\]"):
        run_server([tmp_path / "bundle"]).__enter__()


def test_a_server_that_is_not_ready_in_time_is_reported_and_stopped(bundle: Path) -> None:
    with pytest.raises(ServingError, match="not ready after 0 s"), run_server([bundle], ready_s=0):
        pass
