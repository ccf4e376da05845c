import shutil
from pathlib import Path

import numpy as np
import pytest

from lingraft.errors import RequestError, ServingError
from pipelines.endpoint import embed, predict, run_server
from tests.serving.answers import sentences
from tests.serving.kinds import WIDTH
from tests.serving.shared import SharedServer


def test_what_is_found_in_a_text_is_told_with_how_sure_that_is(open_server: SharedServer) -> None:
    text = " ".join(sentences("de"))
    found = predict(open_server.url, "names", {"text": text}, "de")
    assert found
    for entity, score in found:
        passage, kind = entity.rsplit(" ", 1)
        assert passage.strip("'") in text
        assert (kind in ("LOC", "PER"), 0 < score <= 1) == (True, True)


def test_a_refusal_comes_back_in_the_server_s_words(open_server: SharedServer) -> None:
    with pytest.raises(RequestError, match=r"text 0 is in language 'fr'.* speaks \['de', 'en', 'tr'\]"):
        predict(open_server.url, "topic", {"text": "kilo"}, "fr")


def test_vectors_of_several_languages_come_back_as_an_array(open_server: SharedServer) -> None:
    together = embed(open_server.url, ["kilo", "kilo"], ["de", "tr"], "search", "query")
    assert (together.shape, together.dtype) == ((2, WIDTH), "float32")
    alone = embed(open_server.url, ["kilo"], "tr", "search", "query")
    np.testing.assert_allclose(together[1], alone[0], rtol=0, atol=1e-6)
    assert np.abs(alone - embed(open_server.url, ["kilo"], "tr", "search")).max() > 0.01
    with pytest.raises(RequestError, match=r"refused the texts: text 0 .* speaks \['de', 'en', 'tr'\]"):
        embed(open_server.url, ["kilo"], "fr", "search")


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


@pytest.mark.parametrize("input_type", [None, "none"])
def test_the_client_embeds_by_a_primary_as_well(input_type: str | None, open_server: SharedServer) -> None:
    (vector,) = embed(open_server.url, ["kilo"], "de", "embeddings", input_type)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_a_server_that_cannot_start_is_reported_with_its_log(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    (tmp_path / "bundle" / "body.onnx").unlink()
    with pytest.raises(ServingError, match=r"status 1.*\n.*ArtifactError: .* lacks \['body.onnx'\]"):
        run_server([tmp_path / "bundle"]).__enter__()


def test_a_server_that_is_not_ready_in_time_is_reported_and_stopped(bundle: Path) -> None:
    with pytest.raises(ServingError, match="not ready after 0 s"), run_server([bundle], ready_s=0):
        pass
