"""What is checked before anything is computed: everything that is wrong is in one list, with file and line."""

import json
from pathlib import Path

import pytest

from lingraft import preflight
from lingraft.artifacts.cache import RESULTS_VARIABLE
from lingraft.config.text import Split
from lingraft.data.splits import split_of
from lingraft.data.text import prepare
from lingraft.preflight import NotReadyError
from tests import made_up
from tests.preflight.listed import change, recipe_on, refusal

TASK = {"name": "topic", "kind": "documents"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Labelled text in English and German that is in order."""
    return made_up.write(tmp_path / "text", ("en", "de"))


def test_everything_that_is_wrong_is_listed_at_once_with_file_and_line(text: Path, tmp_path: Path) -> None:
    change(text / "de.jsonl", 3, "{")
    change(text / "de.jsonl", 5, '{"txt": "a"}')
    change(text / "en.jsonl", 7, '{"text": "no label"}')
    (tmp_path / "file").write_text("")
    found = refusal(recipe_on(text, targets=["de", "sw"], tasks=[TASK]), tmp_path / "file" / "out")
    assert [
        line
        for line, words in zip(
            found,
            [
                f"cannot write {tmp_path / 'file' / 'out'}",
                f"en: {text / 'en.jsonl'}, line 7 has no label, and task 'topic' needs one",
                f"de: {text / 'de.jsonl'}, line 3: not JSON",
                f"de: {text / 'de.jsonl'}, line 5: no key 'text', only ['txt']",
                f"sw: {text} holds no text for language 'sw'",
            ],
            strict=True,
        )
        if not line.startswith(words)
    ] == []


def test_files_behind_one_that_cannot_be_read_are_checked_too(text: Path) -> None:
    (text / "de.jsonl").unlink()
    (text / "de").mkdir()
    (text / "de" / "a.txt").write_bytes(b"Gut.\n\xff\n")
    (text / "de" / "b.jsonl").write_text('{"text": 1}\n')
    (text / "de" / "c.csv").write_text("")
    found = refusal(recipe_on(text))
    assert [line.split(":")[1].split(",")[0].split(" has ")[0].strip() for line in found] == [
        str(text / "de" / name) for name in ("a.txt", "b.jsonl", "c.csv")
    ]


def test_many_bad_lines_are_counted_and_hide_no_other_problem(text: Path) -> None:
    with (text / "de.jsonl").open("a") as stream:
        stream.write("".join(f'{{"text": {number}}}\n' for number in range(100)) + '{"text": "no label"}\n')
    found = refusal(recipe_on(text, tasks=[TASK]))
    assert len(found) == 22
    assert found[20] == "de: and 80 more like these"
    assert found[21].startswith(f"de: {text / 'de.jsonl'}, line 401 has no label")


def test_lines_that_are_wrong_alike_are_one_entry_and_all_are_counted(text: Path) -> None:
    rows = (text / "de.jsonl").read_text().splitlines()
    (text / "de.jsonl").write_text("\n".join(["{}", rows[0], "{}", rows[1], "{}", "{}", *rows[2:], *["{"] * 1500]))
    with pytest.raises(NotReadyError) as caught:
        preflight.require_ready(recipe_on(text))
    head, spread, together = str(caught.value).splitlines()
    assert head == "1,504 problems found before anything was computed:"
    assert spread.startswith(f"  1. de: {text / 'de.jsonl'}, lines 1 to 6 (4 of them): no key 'text'")
    assert together.startswith(f"  2. de: {text / 'de.jsonl'}, lines 305 to 1,804: not JSON")


def test_a_label_that_the_source_does_not_have_is_named_with_its_place(text: Path) -> None:
    documents = made_up.documents("de", 300)
    line = next(
        number for number, document in enumerate(documents, start=1) if split_of(document["name"], Split()) == "test"
    )
    change(text / "de.jsonl", line, json.dumps(documents[line - 1] | {"label": "gardn"}))
    [found] = refusal(recipe_on(text, tasks=[TASK]))
    assert found.startswith(f"de: {text / 'de.jsonl'}, line {line} has label 'gardn'; task 'topic' knows ['garden', ")


def test_labels_of_the_source_must_be_among_those_of_the_recipe(text: Path) -> None:
    found = refusal(recipe_on(text, tasks=[TASK | {"labels": ["garden", "kitchen"]}]))
    assert all("has label 'harbour'" in line or "have label 'harbour'" in line for line in found)
    assert [line.split(" more of the ")[1].split()[0] for line in found] == ["train", "dev", "test", "test"]


def test_one_label_is_too_few(text: Path) -> None:
    rows = [document | {"label": "garden"} for document in made_up.documents("en", 300)]
    (text / "en.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [found, *_] = refusal(recipe_on(text, tasks=[TASK]))
    assert found.startswith("en: task 'topic' needs two or more labels")


def test_a_split_without_documents_is_found(text: Path) -> None:
    (text / "de.txt").write_text("Nur eins.\n")
    (text / "de.jsonl").unlink()
    [missing] = refusal(recipe_on(text))
    assert missing.startswith("de: 1 document in language 'de' leaves")


def test_the_check_reads_a_bounded_part_of_each_file(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "CHARACTERS", 10_000)
    (text / "de").mkdir()
    for name in ("a", "b"):
        (text / "de" / f"{name}.jsonl").write_text((text / "de.jsonl").read_text() + "{\n")
    (text / "de.jsonl").unlink()
    sample = preflight.read_text(recipe_on(text).text, Split(), "de")
    assert 10_000 <= sum(map(len, sample.documents)) < 12_000
    assert (sample.errors, sample.whole) == ([], False)
    change(text / "en.jsonl", 299, json.dumps(made_up.documents("en", 1)[0] | {"label": "moon"}))
    preflight.require_ready(recipe_on(text, tasks=[TASK]))  # nothing is claimed of labels that may stand further on


def test_languages_side_by_side_are_refused_only_if_none_is_ready(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_on(text, targets=["de", "sw"])
    preflight.require_some_ready(recipe, ["de", "sw"])
    told = capsys.readouterr().err
    assert "1. sw: " in told
    assert "The other languages go on.\nChecked the text of de.\n" in told
    with pytest.raises(NotReadyError, match="1 problem found before anything was computed"):
        preflight.require_some_ready(recipe, ["sw"])
    assert "Checked" not in capsys.readouterr().err


def test_results_that_cannot_be_written_are_found(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path / "file"))
    [found] = refusal(recipe_on(text))
    assert found.startswith(f"cannot write {tmp_path / 'file'}")
    monkeypatch.setenv(RESULTS_VARIABLE, "memory://results/here")
    preflight.require_ready(recipe_on(text))


def test_what_lacks_labels_is_listed(text: Path) -> None:
    (text / "de.jsonl").unlink()
    (text / "de.txt").write_text("\n\n".join(row["text"] for row in made_up.documents("de", 300)))
    recipe = recipe_on(text, tasks=[TASK])
    [found] = refusal(recipe)
    assert found.startswith(f"de: {text / 'de.txt'} and 299 further documents have no label")
    assert "set the task's 'languages' to those that have labels" in found


def test_labels_are_only_asked_of_languages_that_a_task_is_judged_in(text: Path, tmp_path: Path) -> None:
    (text / "de.jsonl").unlink()
    (text / "de.txt").write_text("\n\n".join(row["text"] for row in made_up.documents("de", 300)))
    recipe = recipe_on(text, tasks=[TASK | {"languages": ["en"]}])
    preflight.require_ready(recipe)
    assert prepare(recipe, "de", tmp_path / "prepared").manifest.language == "de"
    change(text / "en.jsonl", 7, '{"text": "no label"}')
    [found] = refusal(recipe)
    assert found.startswith(f"en: {text / 'en.jsonl'}, line 7 has no label")
