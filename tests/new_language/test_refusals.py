"""What the language lane refuses, and that it does so before long work."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lingraft import Wanted, add_language
from lingraft.artifacts.cache import ProvenanceMismatchError
from lingraft.errors import (
    AlignmentError,
    ArtifactError,
    LingraftError,
    MissingExtraError,
    RecipeError,
    TextError,
)
from lingraft.new_language.recipe import Resources
from lingraft.new_language.summary import AddedLanguage
from lingraft.preflight import NotReadyError
from tests import made_up
from tests.new_language.given import RECIPE, files_of, out_of
from tests.preflight.test_pairs import FRENCH, lines
from tests.workshop import Workshop, copied


def test_without_transformers_nothing_is_begun(
    workshop: Workshop, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"lingraft\[huggingface\]"):
        add_language(workshop.primary, text, "tr", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_recipe_whose_rows_need_text_asks_for_the_sources_vectors(
    workshop: Workshop, text: Path, tmp_path: Path
) -> None:
    aligned = RECIPE.read_text().replace("[adaptation]\n", '[adaptation]\ninitialisation = "aligned"\n')
    (tmp_path / "aligned.toml").write_text(aligned)
    with pytest.raises(RecipeError, match=r"static vectors. Give .*\(--results\), or compute .*\(--vectors\)"):
        add_language(workshop.primary, text, "tr", tmp_path / "out", recipe=tmp_path / "aligned.toml")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"language": "Türkçe"}, RecipeError, "'Türkçe' is no BCP 47 tag.* Is 'tr' meant"),
        ({"text": "absent.txt"}, TextError, "no file or folder .*absent.txt"),
        ({"text": []}, RecipeError, r"paths of 'tr', \[\], must be one or more"),
        ({"tasks": ["primary"]}, ArtifactError, "kind primary, but one of kind task"),
        ({"mini": "primary"}, ArtifactError, "kind primary, but one of kind mini"),
        ({"tasks": ["task/1", "task/1"]}, ArtifactError, r"with seeds \[1, 1\]. Give each seed once"),
        ({"wanted": Wanted(steps=0)}, RecipeError, r"--steps \(adaptation.steps\): .* greater than 0"),
        ({"wanted": Wanted(vocabulary=5)}, RecipeError, r"--vocabulary \(tokenizer.vocabulary\)"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_before_anything_is_made(
    workshop: Workshop, text: Path, tmp_path: Path, given: dict[str, Any], error: type[LingraftError], words: str
) -> None:
    root = workshop.primary.parent
    given = {"primary": root / "primary", "text": text, "language": "tr", "out": tmp_path / "out"} | given
    if "tasks" in given:
        given["tasks"] = [root / task for task in given["tasks"]]
    if "mini" in given:
        given["mini"] = root / given["mini"]
    with pytest.raises(error, match=words):
        add_language(**given)
    assert not (tmp_path / "out").exists()


def test_a_task_of_another_primary_is_refused(workshop: Workshop, text: Path, tmp_path: Path) -> None:
    other = workshop.other_primary(tmp_path / "other")
    with pytest.raises(AlignmentError, match=r"task 'topic' in .* is aligned with primary"):
        add_language(other, text, "tr", tmp_path / "out", tasks=[workshop.tasks[1]])


def test_everything_that_is_wrong_with_the_text_is_listed_before_anything_is_made(
    workshop: Workshop, tmp_path: Path
) -> None:
    rows = [json.dumps(document | {"label": "moon"}) for document in made_up.documents("tr", 200)]
    (tmp_path / "moon.jsonl").write_text("\n".join([*rows, "{", '{"text": 1}']))
    with pytest.raises(NotReadyError) as caught:
        add_language(
            workshop.primary,
            [tmp_path / "moon.jsonl", tmp_path / "absent.txt"],
            "tr",
            tmp_path / "out",
            tasks=[workshop.tasks[1]],
        )
    first, *found = str(caught.value).splitlines()
    assert first == "4 problems found before anything was computed:"
    places = ("moon.jsonl, line 201: not JSON", "moon.jsonl, line 202: 'text' must", "absent.txt", "label 'moon'")
    assert [words for line, words in zip(found, places, strict=True) if words not in line] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no file or folder .*source.txt"),
        (b"", "the text holds no document that is not empty"),
        ("Größe ".encode("latin-1"), "source.txt.* not UTF-8"),
        ("\n\n".join(20 * lines(FRENCH)).encode(), "should be in 'en', but seems to be in 'fr'"),
    ],
    ids=["missing", "empty", "encoded otherwise", "French"],
)
def test_text_of_the_source_is_checked_before_anything_is_made(
    workshop: Workshop, text: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    given = tmp_path / "source.txt"
    if content is not None:
        given.write_bytes(content)
    resources, vectors = Resources.of(source_text=given), tmp_path / "vectors"
    with pytest.raises(NotReadyError, match=f"en: .*{words}") as caught:
        add_language(workshop.primary, text, "tr", tmp_path / "out", resources=resources, vectors=vectors)
    assert str(caught.value).startswith("1 problem found")
    assert not (tmp_path / "out").exists()


def test_a_damaged_stage_is_named_and_made_again(
    workshop: Workshop, text: Path, added: AddedLanguage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = copied(out_of(added), tmp_path / "tr")
    (out / "tokenizer" / "tokenizer.json").write_bytes(b"")
    add_language(workshop.primary, text, "tr", out, tasks=[*workshop.tasks.values()], recipe=RECIPE)
    assert "tokenizer.json was truncated or edited" in capsys.readouterr().err
    assert {path.name.partition("-")[0] for path in out.glob("tokenizer.*")} == {"tokenizer.made", "tokenizer.damaged"}


def test_other_settings_and_other_text_do_not_mix_with_what_is_there(
    workshop: Workshop, text: Path, added: AddedLanguage, tmp_path: Path
) -> None:
    out = copied(out_of(added), tmp_path / "tr")
    before, longer = files_of(out), tmp_path / text.name
    longer.write_text(text.read_text() + json.dumps({"text": "yeni"}) + "\n")
    for wanted, given, words in (
        (Wanted(learning_rate=0.5), text, r"embeddings was .* settings\.adaptation\.learning_rate was 0\.003, is 0\.5"),
        (Wanted(), longer, r"text was made from something else: pages\.jsonl has changed\. Remove"),
    ):
        with pytest.raises(ProvenanceMismatchError, match=words):
            add_language(workshop.primary, given, "tr", out, recipe=RECIPE, wanted=wanted)
    assert files_of(out) == before
