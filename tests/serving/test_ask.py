import shutil
from pathlib import Path

import pytest

from lingraft.errors import RequestError, ServingError
from lingraft.serving.ask import ask, running
from lingraft.serving.questions import Question
from tests.serving.answers import LANGUAGES, pytorch_logits, rows_of, sentences
from tests.tiny import Tiny


def test_each_language_is_answered_by_the_real_server(bundle: Path, tiny: Tiny) -> None:
    questions = [Question(language, sentences(language)[2]) for language in LANGUAGES]
    found = ask(bundle, questions)
    assert [(answer.language, answer.text) for answer in found] == questions
    for answer in found:
        probabilities_C = pytorch_logits(tiny, answer.language, rows_of(tiny, answer.language, [answer.text])).softmax(
            1
        )
        assert answer.probability == pytest.approx(float(probabilities_C.max()), abs=1e-5)
        assert answer.label == ["garden", "harbour", "kitchen"][int(probabilities_C.argmax())]


def test_a_refusal_comes_back_in_the_server_s_words(bundle: Path) -> None:
    with pytest.raises(RequestError, match=r"question in 'fr': text 0 .* speaks \['de', 'en', 'tr'\]"):
        ask(bundle, [Question("fr", "kilo")])


def test_a_server_that_cannot_start_is_reported_with_its_log(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    (tmp_path / "bundle" / "body.onnx").unlink()
    with pytest.raises(ServingError, match=r"status 1.*\n.*ArtifactError: .* lacks \['body.onnx'\]"):
        ask(tmp_path / "bundle", [])


def test_a_server_that_is_not_ready_in_time_is_reported_and_stopped(bundle: Path) -> None:
    with pytest.raises(ServingError, match="not ready after 0 s"), running([bundle], ready_s=0):
        pass
