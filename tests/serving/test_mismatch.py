"""Texts that are not in the language they were sent in: how much of them is unknown, and what is said of it."""

from pathlib import Path
from typing import Any

import pytest

from tests.serving.applications import Send, sending, value
from tests.serving.asking import body, infer, inputs, outputs_of

CHINESE = "老磨坊在河边秋天磨小麦冬天磨黑麦"


def shares(send: Send, model: str, sent: dict[str, Any]) -> list[float]:
    return outputs_of(send("POST", infer(model), json=sent))["unknown_share"]


def test_each_text_has_the_share_of_its_characters_that_no_piece_stands_for(bundles: list[Path]) -> None:
    visible = len(CHINESE)
    texts = ["kilo de ba", CHINESE, f"{CHINESE} kilo", "kilo 磨", "磨" * 200 + " kilo"]
    expected = [0, 1, visible / (visible + 4), 1 / 5, 200 / 204]
    with sending(bundles) as send:
        sent = body(texts, parameters={"truncate": True})
        assert shares(send, "topic", sent) == pytest.approx(expected)
        # Whatever else is in the request.
        assert [shares(send, "topic", body([text], parameters={"truncate": True}))[0] for text in texts] == (
            pytest.approx(expected)
        )
        assert shares(send, "inference", inputs(["de"], text=["kilo"], text_pair=["磨磨磨磨"])) == [0.5]
        question = inputs(["de", "de"], question=["ba", "ba"], context=["kilo " * 60 + "磨" * 302, "kilo"])
        assert shares(send, "reading", question) == pytest.approx([302 / (302 + 240 + 2), 0])
        assert shares(send, "fill-mask", inputs(["de"], text=["kilo <mask> 磨磨磨磨"])) == [0.5]


def test_above_the_limit_an_answer_carries_a_warning_that_names_a_few_texts_and_is_counted(bundle: Path) -> None:
    counted = 'lingraft_unknown_texts_total{language="de",task="topic"}'
    with sending([bundle], unknown_limit=0.5) as send:
        before = value(send, counted)
        told = send("POST", infer("topic"), json=body(["kilo", *[CHINESE] * 8])).json()["parameters"]["warning"]
        assert told.startswith(
            "text 1 does not look like 'de': its tokenizer does not know 100% of the characters; text 2"
        )
        assert told.count("does not look like 'de'") == 5
        assert told.endswith("; 3 more")
        assert value(send, counted) - before == 8
        assert "warning" not in send("POST", infer("topic"), json=body(["kilo"])).json()["parameters"]
