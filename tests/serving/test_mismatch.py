"""Texts that are not in the language they were sent in: how much of them is unknown, and what is said of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lingraft.data.language_detection import LanguageDetector
from tests.serving.applications import Send, sending, value
from tests.serving.asking import body, infer, inputs, outputs_of

CHINESE = "老磨坊在河边秋天磨小麦冬天磨黑麦"
SPANISH = "El viejo molino junto al río muele trigo en otoño y centeno en invierno."
GERMAN = "Die alte Mühle am Fluss mahlt im Herbst Weizen und im Winter Roggen."


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector.load()


def shares(send: Send, texts: Sequence[str], model: str = "topic", **more: Any) -> list[float]:
    sent = body(list(texts), parameters={"truncate": True}) | more
    return outputs_of(send("POST", infer(model), json=sent))["unknown_share"]


def test_each_text_has_the_share_of_its_characters_that_no_piece_stands_for(bundle: Path) -> None:
    texts = ["kilo de ba", CHINESE, f"{CHINESE} kilo", "kilo 磨", "磨" * 200 + " kilo"]
    visible = len(CHINESE)
    with sending([bundle]) as send:
        expected = [0, 1, visible / (visible + 4), 1 / 5, 200 / 204]
        assert shares(send, texts) == pytest.approx(expected)
        # Whatever else is in the request.
        assert [shares(send, [text])[0] for text in texts] == pytest.approx(expected)


def test_all_texts_of_a_pair_a_question_and_a_gap_count(bundles: list[Path]) -> None:
    with sending(bundles) as send:
        pair = inputs(["de"], text=["kilo"], text_pair=["磨磨磨磨"])
        assert outputs_of(send("POST", infer("inference"), json=pair))["unknown_share"] == [0.5]
        question = inputs(["de", "de"], question=["ba", "ba"], context=["kilo " * 60 + "磨" * 302, "kilo"])
        found = outputs_of(send("POST", infer("reading"), json=question))["unknown_share"]
        assert found == pytest.approx([302 / (302 + 240 + 2), 0])
        gap = inputs(["de"], text=["kilo <mask> 磨磨磨磨"])
        assert outputs_of(send("POST", infer("fill-mask"), json=gap))["unknown_share"] == [0.5]


def test_a_warning_names_a_few_texts_and_counts_the_rest(bundle: Path) -> None:
    with sending([bundle]) as send:
        told = send("POST", infer("topic"), json=body([CHINESE] * 8)).json()["parameters"]["warning"]
    assert told.count("does not look like 'de'") == 5
    assert told.endswith("; 3 more")


def test_another_language_is_told_where_it_is_plain(bundle: Path, detector: LanguageDetector) -> None:
    with sending([bundle], detector) as send:
        asked = body([SPANISH, GERMAN, "kilo", GERMAN, CHINESE], ["de", "de", "de", "auto", "de"])
        found = outputs_of(send("POST", infer("topic"), json=asked | {"parameters": {"truncate": True}}))
        assert found["detected_language"] == ["es", "", "", "", "zh"]
    with sending([bundle]) as send:
        found = outputs_of(send("POST", infer("topic"), json=body([SPANISH], parameters={"truncate": True})))
        assert found["detected_language"] == [""]


def test_of_a_language_that_the_detector_does_not_know_there_is_no_other(detector: LanguageDetector) -> None:
    assert detector.detect_other("de", SPANISH) == "es"
    assert detector.detect_other("es-MX", SPANISH) == ""
    assert detector.detect_other("tlh", SPANISH) == ""
    assert detector.detect_other("de", "kilo") == detector.detect_other("de", "4711-0815", unsure=True) == ""
    assert detector.detect_other("de", "磨坊", unsure=True) == "zh"


@pytest.mark.parametrize("refuses", [False, True])
def test_above_the_limit_an_answer_carries_a_warning_or_is_refused_and_is_counted(
    bundle: Path, detector: LanguageDetector, refuses: bool
) -> None:
    outcome = "refused" if refuses else "warned"
    counted = f'lingraft_unknown_texts_total{{language="de",outcome="{outcome}",task="topic"}}'
    doubt = "text 1 does not look like 'de': its tokenizer does not know 100% of the characters, and the language"
    with sending([bundle], detector, unknown_limit=0.5, refuse_unknown=refuses) as send:
        before = value(send, counted)
        found = send("POST", infer("topic"), json=body(["kilo", CHINESE, "ba 磨"]))
        assert found.status_code == (400 if refuses else 200)
        said = found.json()["error"] if refuses else found.json()["parameters"]["warning"]
        assert said.startswith(f"{doubt} seems to be 'zh'")
        assert value(send, counted) - before == 1
        assert "warning" not in send("POST", infer("topic"), json=body(["kilo", "ba 磨"])).json()["parameters"]
