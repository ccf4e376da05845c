"""Text that seems to be in another language than its name says is told before anything is computed."""

import json
from pathlib import Path

import pytest

from lingraft import preflight
from tests.preflight.listed import recipe_on
from tests.preflight.test_pairs import ENGLISH, FRENCH, GERMAN, lines


def written(folder: Path, **sentences: tuple[str, ...]) -> Path:
    """A folder of text with a document of forty sentences, a hundred times, in each language."""
    folder.mkdir()
    for language, own in sentences.items():
        texts = [{"name": f"page-{number}", "text": "\n".join(lines(own))} for number in range(100)]
        (folder / f"{language}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in texts))
    return folder


def test_text_in_another_language_than_its_name_is_refused_with_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = preflight.find_problems(recipe_on(written(tmp_path / "text", en=ENGLISH, de=FRENCH)), ["en", "de"], [])
    [message] = [each.text for every in found.values() for each in every if "seems to be in" in each.text]
    assert message.startswith("de: the text should be in 'de', but seems to be in 'fr' (40 of 40 parts of a sample).")
    assert "tag it by a private code" in message
    assert "seems to be in" not in capsys.readouterr().err


def test_text_of_which_a_part_is_in_another_language_is_told_and_accepted(tmp_path: Path) -> None:
    folder = written(tmp_path / "text", en=ENGLISH, de=FRENCH)
    own = [{"name": f"own-{number}", "text": "\n".join(lines(GERMAN))} for number in range(25)]
    with (folder / "de.jsonl").open("a") as stream:
        stream.writelines(json.dumps(each) + "\n" for each in own)
    notes: list[str] = []
    assert preflight.find_problems(recipe_on(folder), ["en", "de"], notes) == {}
    [told] = [line for line in notes if "seems to be in" in line]
    assert told.startswith("de: the text should be in 'de', but seems to be in 'fr' (")
    (folder / "de.jsonl").write_text((folder / "de.jsonl").read_text() + "{\n")
    preflight.find_problems(recipe_on(folder), ["en", "de"], refused := [])
    assert refused == ["Checked the text of en."]


def test_text_in_its_own_language_or_in_one_that_nothing_knows_is_not_told(
    tmp_path: Path,
) -> None:
    recipe = recipe_on(written(tmp_path / "text", en=ENGLISH, de=GERMAN, gsw=GERMAN), targets=["de", "gsw"])
    preflight.find_problems(recipe, recipe.languages, notes := [])
    assert notes == ["Checked the text of en, de, gsw."]
