"""What people find in the fields of the playground when they open it."""

from dataclasses import replace
from pathlib import Path

import pytest

from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.fill_mask import with_mask
from lingraft.serving.served_models import metadata, served_models
from lingraft.serving.settings import ServingSettings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The mill grinds wheat.", "The mill <mask> wheat."),
        ("kilo", "<mask>"),
        ("老磨坊", "老<mask>坊"),
        ("a <mask> of flour", "a <mask> of flour"),
        ("...", "..."),
    ],
)
def test_the_middle_word_of_an_example_makes_room_for_a_mask(text: str, expected: str) -> None:
    assert with_mask(text) == expected


def test_examples_of_the_languages_that_are_served_are_told(bundles: list[Path]) -> None:
    given = {"de": {"text": "kilo ba de"}, "fr": {"text": "pelo"}}
    opened = replace(Bundle.load(bundles[-1]), examples=given)
    told = {
        name: metadata(model, ServingSettings())["examples"]
        for name, model in served_models({opened.name: opened}).items()
    }
    assert told == {"fill-mask": {"de": {"text": "kilo <mask> de"}}, "embeddings": {"de": {"text": "kilo ba de"}}}
