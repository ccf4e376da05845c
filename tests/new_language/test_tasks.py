"""Tasks whose test examples are files: judged where the language has some, and only exported where it has none."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lingraft import add_language
from lingraft.artifacts.cache import ProvenanceMismatchError
from lingraft.config.recipe import Recipe
from lingraft.serving.bundle import Bundle
from lingraft.stages import finetune as finetune_stage
from lingraft.training.schedule import ignore_metrics
from tests import made_up
from tests.new_language.given import BRIEFLY, plain_text
from tests.workshop import Workshop


def write_pairs(file: Path, language: str) -> None:
    pages = made_up.documents(language, 40)
    rows = [
        {"sentence1": a["text"], "sentence2": b["text"], "label": str(a["label"] == b["label"]).lower()}
        for a, b in itertools.pairwise(pages)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def finetuned(workshop: Workshop, tmp_path: Path) -> Callable[..., Path]:
    """Finetunes the workshop's primary on pairs, with test examples in English and German."""
    for language in ("en", "de"):
        write_pairs(tmp_path / f"pairs-{language}.jsonl", language)
    data = {"kind": "file", "path": str(tmp_path / "pairs-{language}.jsonl")}

    def finetune(name: str, **changes: Any) -> Path:
        task = {"name": name, "kind": "pairs", "train": data, "dev": data, "test": data} | changes
        raw = workshop.recipe.model_dump(mode="json") | {"tasks": [task | {"finetuning": {"epochs": 0.5}}]}
        out = tmp_path / "task" / name
        finetune_stage.finetune(Recipe.parse(raw), name, workshop.primary, None, 1, out, ignore_metrics)
        return out

    return finetune


def test_test_examples_in_the_language_are_judged_whatever_the_text_is(
    workshop: Workshop, finetuned: Callable[..., Path], tmp_path: Path
) -> None:
    given = workshop.primary, plain_text(tmp_path, "de"), "de", tmp_path / "out", [finetuned("same-topic")]
    added = add_language(*given, wanted=BRIEFLY)
    [scores] = added.scores.tasks
    assert (scores.name, scores.examples, scores.labels) == ("same-topic", 39, ["false", "true"])
    assert scores.initial is not None
    assert set(added.hf) == {"masked_lm", "same-topic"}
    assert added.left_out == {}
    bundled = Bundle.load(added.bundles["same-topic"])
    assert (bundled.kind, bundled.labels, [*bundled.languages]) == ("pairs", ["false", "true"], ["en", "de"])
    bundled.run_self_test()
    file = tmp_path / "pairs-de.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ProvenanceMismatchError, match=r"something else: .*same-topic has changed"):
        add_language(*given, wanted=BRIEFLY)


def test_without_test_examples_in_the_language_it_says_why_nothing_is_judged(
    workshop: Workshop, finetuned: Callable[..., Path], tmp_path: Path
) -> None:
    examples = {"de": {"text": "ki", "text_pair": "lo"}}
    tasks = [finetuned("in-german", languages=["de"], examples=examples), finetuned("anywhere", examples=examples)]
    added = add_language(workshop.primary, plain_text(tmp_path, "tr"), "tr", tmp_path / "out", tasks, wanted=BRIEFLY)
    assert added.scores.tasks == ()
    assert r"its test examples are in ['de'], none in 'tr'" in added.left_out["judged on task 'in-german'"]
    assert "pairs-tr.jsonl cannot be read" in added.left_out["judged on task 'anywhere'"]
    assert added.loaders["anywhere"] == "AutoModelForSequenceClassification"


def test_a_language_whose_documents_have_labels_is_judged_though_the_recipe_s_targets_had_none(
    workshop: Workshop, tmp_path: Path
) -> None:
    task = {"name": "topic", "kind": "documents", "languages": ["en"], "finetuning": {"epochs": 0.5}}
    recipe = Recipe.parse(workshop.recipe.model_dump(mode="json") | {"tasks": [task]})
    folder = tmp_path / "task"
    finetune_stage.finetune(recipe, "topic", workshop.primary, workshop.texts["en"], 1, folder, ignore_metrics)
    made_up.write(tmp_path / "text", ("de",), count=200)
    added = add_language(workshop.primary, tmp_path / "text", "de", tmp_path / "de", [folder], wanted=BRIEFLY)
    assert [scores.name for scores in added.scores.tasks] == ["topic"]
