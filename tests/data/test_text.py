import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lingraft.config.recipe import Recipe
from lingraft.config.text import Split
from lingraft.data.documents import STRAY_BLANKS, Document
from lingraft.data.text import SPLITS, load_split, prepare, split_of
from lingraft.errors import RecipeError, TextError
from tests.text_recipe import text_recipe

_TASK = {"name": "topic", "kind": "documents"}


def _folder(path: Path, **changes: Any) -> Recipe:
    return text_recipe({"kind": "folder", "path": str(path)}, **changes)


def _write_parallel(source: Path, documents: int, languages: tuple[str, ...] = ("en", "de")) -> None:
    for language in languages:
        rows = (
            {"text": f"{language} {number}", "name": f"page/{number}", "label": f"topic{number % 2}"}
            for number in range(documents)
        )
        (source / f"{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_names_split_never_changes() -> None:
    # Computed once; a change here would move pages that old models were trained on into the test split.
    expected = ["test", "train", "dev", "test", "dev", "train", "dev", "test", "dev", "train", "test", "train"]
    assert [split_of(f"scalc/01/{number}", Split()) for number in range(12)] == expected


def test_splits_take_the_shares_asked_for() -> None:
    split = Split(dev_share=0.3, test_share=0.1)
    found = [split_of(f"page {number}", split) for number in range(4000)]
    assert found.count("dev") / 4000 == pytest.approx(0.3, abs=0.03)
    assert found.count("test") / 4000 == pytest.approx(0.1, abs=0.03)


def test_documents_come_back_in_splits_that_are_disjoint_and_equal_across_languages(
    tmp_path: Path,
) -> None:
    _write_parallel(tmp_path, 100)
    names = {}
    for language in ("en", "de"):
        text = prepare(_folder(tmp_path), language, tmp_path / "out" / language)
        names[language] = [{document.name for document in load_split(text, split)} for split in SPLITS]
        found = {document for split in SPLITS for document in load_split(text, split)}
        assert found == {Document(f"page/{n}", f"{language} {n}", f"topic{n % 2}") for n in range(100)}
    assert names["en"] == names["de"]
    assert sum(map(len, names["en"])) == len(set.union(*names["en"])) == 100


def test_the_manifest_counts_what_was_written_and_dropped(tmp_path: Path) -> None:
    _write_parallel(tmp_path, 30)
    with (tmp_path / "de.jsonl").open("a") as stream:
        stream.write('{"text": "  "}\n{"text": ""}\n')
    text = prepare(_folder(tmp_path), "de", tmp_path / "out")
    details = text.manifest.details
    assert text.manifest.language == "de"
    assert details["dropped"] == {"empty document": 2}
    assert sum(details["documents"].values()) == 30
    for split in SPLITS:
        documents = load_split(text, split)
        assert details["documents"][split] == len(documents)
        assert details["characters"][split] == sum(len(document.text) for document in documents)
        assert sum(details["labels"][split].values()) == len(documents)


def test_data_hash_follows_the_content_not_the_place_or_packing(tmp_path: Path) -> None:
    sources = [tmp_path / name for name in ("one", "two", "three")]
    for source, documents in zip(sources, (30, 30, 31), strict=True):
        source.mkdir()
        _write_parallel(source, documents)
    (sources[1] / "de.jsonl").rename(sources[1] / "renamed")
    (sources[1] / "de").mkdir()
    (sources[1] / "renamed").rename(sources[1] / "de/all.jsonl")
    first, second, third = (
        prepare(_folder(source), "de", source / "out").manifest.data_hashes["documents"] for source in sources
    )
    assert first == second != third


def test_help_pages_in_the_cache_become_a_labelled_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path))
    for language, folder in (("en", "en-us"), ("de", "de")):
        for number in range(30):
            page = tmp_path / f"libreoffice-help/libreoffice-help-{folder}_1_all/scalc/{number}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(f'<div id="DisplayArea"><p>{language} {number}</p><p>{number}</p></div>')
    recipe = text_recipe({"kind": "libreoffice-help"}, tasks=[_TASK])
    details = prepare(recipe, "de", tmp_path / "out").manifest.details
    assert sum(labels["scalc"] for labels in details["labels"].values()) == 30
    assert details["dropped"] == {"untranslated paragraph": 30}


def test_a_dataset_named_in_the_recipe_becomes_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set-de").mkdir()
    _write_parallel(tmp_path / "set-de", 30, ("de",))
    source = {"kind": "huggingface", "dataset": str(tmp_path / "set-{language}"), "name_column": "name"}
    text = prepare(text_recipe(source), "de", tmp_path / "out")
    assert sum(text.manifest.details["documents"].values()) == 30


def test_a_language_outside_the_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'fr' is not in the recipe"):
        prepare(_folder(tmp_path), "fr", tmp_path / "out")


def test_text_without_a_word_is_refused(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text(" \n\n\t\n")
    with pytest.raises(TextError, match="holds no text in language 'de'") as caught:
        prepare(_folder(tmp_path), "de", tmp_path / "out")
    assert str(tmp_path) in str(caught.value)


def test_too_few_documents_for_every_split_are_counted_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text("Nur eins.\n")
    with pytest.raises(TextError, match=r"1 document in language 'de' leaves \w+ and \w+ empty \(dev_share 0.1"):
        prepare(_folder(tmp_path), "de", tmp_path / "out")


def test_unlabelled_documents_are_refused_where_the_recipe_has_a_task(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text("".join(f"Zeile {number}\n" for number in range(100)))
    with pytest.raises(TextError, match="has no label, and the recipe's task 'topic' needs one") as caught:
        prepare(_folder(tmp_path, tasks=[_TASK]), "de", tmp_path / "out")
    assert "remove the task from the recipe" in str(caught.value)
    assert prepare(_folder(tmp_path), "de", tmp_path / "out").manifest.details["labels"]["train"] == {}


def test_a_task_with_examples_of_its_own_asks_no_labels_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text("".join(f"Zeile {number}\n" for number in range(100)))
    files = {split: {"kind": "file", "path": f"{split}.tsv"} for split in SPLITS}
    recipe = _folder(tmp_path, tasks=[{"name": "xnli", "kind": "pairs", **files}])
    assert sum(prepare(recipe, "de", tmp_path / "out").manifest.details["documents"].values()) == 100


def test_damaged_text_leaves_no_artifact(tmp_path: Path) -> None:
    _write_parallel(tmp_path, 30)
    with (tmp_path / "de.jsonl").open("ab") as stream:
        stream.write(b'{"text": "\xff"}\n')
    with pytest.raises(TextError, match=r"de\.jsonl, line 31"):
        prepare(_folder(tmp_path), "de", tmp_path / "artifacts/text")
    assert list((tmp_path / "artifacts").iterdir()) == []


def test_files_of_any_name_are_prepared_for_the_language_that_they_are_given_for(tmp_path: Path) -> None:
    _write_parallel(tmp_path, 40)
    (tmp_path / "de.jsonl").rename(tmp_path / "nachrichten.jsonl")
    recipe = text_recipe({"kind": "files", "paths": {"de": [str(tmp_path / "nachrichten.jsonl")]}})
    prepared = prepare(recipe, "de", tmp_path / "text")
    assert sum(prepared.manifest.details["documents"].values()) == 40
    assert all(document.text.startswith("de ") for document in load_split(prepared, "train"))
    with pytest.raises(TextError, match=r"names files for \['de'\], but none for 'en'"):
        prepare(recipe, "en", tmp_path / "english")


def test_patterns_are_read_in_their_order_and_nothing_twice(tmp_path: Path) -> None:
    _write_parallel(tmp_path, 40)
    for number in range(3):
        (tmp_path / f"part-{number}.txt").write_text("".join(f"{number}/{line}\n" for line in range(40)))
    parts, first = str(tmp_path / "part-*.txt"), str(tmp_path / "part-0.txt")
    recipe = text_recipe({"kind": "files", "paths": {"de": [parts], "en": [parts, first]}})
    prepared = prepare(recipe, "de", tmp_path / "text")
    found = [document.text for document in load_split(prepared, "train")]
    assert found == sorted(found, key=lambda text: [int(part) for part in text.split("/")])
    assert {text.partition("/")[0] for text in found} == {"0", "1", "2"}
    with pytest.raises(TextError, match=r"'paths' of 'en' name .*part-0\.txt more than once"):
        prepare(recipe, "en", tmp_path / "english")


def test_the_manifest_and_the_log_say_how_files_were_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"Satz {number}." for number in range(300)]
    (tmp_path / "de.txt").write_text("\n".join([lines[0], "", *lines[1:]]))
    text = prepare(_folder(tmp_path), "de", tmp_path / "out")
    assert text.manifest.details["reading"] == {STRAY_BLANKS: 1}
    assert f"text de: 1 {STRAY_BLANKS}" in capsys.readouterr().err
    (tmp_path / "de.txt").write_text("\n".join(lines))
    assert "reading" not in prepare(_folder(tmp_path), "de", tmp_path / "again").manifest.details


_PREPARE = """
import re, sys
from pathlib import Path
from lingraft.data.text import prepare
from lingraft.config.text import Cleaning
from tests.text_recipe import text_recipe

cleaning = Cleaning() if sys.argv[1] == "cleaned" else None
for source in sys.argv[2:]:
    recipe = text_recipe({"kind": "folder", "path": source})
    text = recipe.text.model_copy(update={"cleaning": cleaning})
    prepare(recipe.model_copy(update={"text": text}), "de", Path(source) / "out")
    # Not ru_maxrss, which begins with what the process held that this one was started by.
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def _peak_kilobytes(cleaning: str, sources: list[Path]) -> list[int]:
    """Peaks of a process that prepares one text after the other, after each of them."""
    command = [sys.executable, "-c", _PREPARE, cleaning, *map(str, sources)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, stdout=subprocess.PIPE, text=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize(
    ("cleaning", "file", "end"),
    [
        pytest.param("cleaned", "de.txt", "\n\n", marks=pytest.mark.integration),
        pytest.param("as it is", "de/shard.txt", "\n", marks=pytest.mark.nightly),
        pytest.param("as it is", "de.txt", "\n\n", marks=pytest.mark.nightly),
    ],
)
def test_memory_does_not_grow_with_the_text(tmp_path: Path, cleaning: str, file: str, end: str) -> None:
    draw = random.Random(1)
    lines = [" ".join("".join(draw.choices("abcdefgh", k=4)) for _ in range(200)) for _ in range(20)]
    sources = []
    for megabytes in (1, 14):
        sources.append(tmp_path / str(megabytes))
        (sources[-1] / file).parent.mkdir(parents=True)
        with (sources[-1] / file).open("w") as stream:
            stream.writelines(f"{number} {lines[number % 20]}{end}" for number in range(megabytes * 1000))
    small, large = _peak_kilobytes(cleaning, sources)
    assert large - small < 9000
