"""The data folder of the comparison on tasks that cross languages."""

import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import transfer_data
from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe
from lingraft.data.documents import Document
from lingraft.tasks.examples import load_examples


def pages(language: str, dropped: Counter[str]) -> Iterator[Document]:
    for number in range(60):
        topic = "scalc" if number % 2 else "swriter"
        yield Document(f"{topic}/{number}", f"{language} page {number} " * 5, topic, "")
    yield Document("scalc/short", "short", "scalc", "")


def test_it_samples_text_links_examples_and_writes_topics_that_the_recipe_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_data, "help_documents", pages)
    monkeypatch.setattr(transfer_data, "TARGET_MB", 0.001)
    recipe, data, out = Recipe.load(transfer_data.RECIPE), tmp_path / "data", tmp_path / "out"
    tags = "\n\n".join(f"word{number}\tNOUN\n.\tPUNCT" for number in range(5)) + "\n"
    for name in ("udpos/test-de.tsv", "panx/dev-en.tsv", "panx/dev-de.tsv", "panx/train-en.tsv"):
        write_text(data / "eval" / name, tags)
    for language in ("en", "de"):
        write_text(data / f"eval/xnli/dev-{language}.tsv", "".join(f"{language} {row}\tx\ty\n" for row in range(4)))
    (data / "corpus").mkdir()
    for language in recipe.languages:
        text = "\n\n".join(f"{language} {number} " * 10 for number in range(100))
        (data / f"corpus/{language}.txt.xz").write_bytes(lzma.compress(text.encode()))
    transfer_data.main(["--data", str(data), "--out", str(out)])
    sizes = {language: (out / f"corpus/{language}.txt").stat().st_size for language in recipe.languages}
    assert sizes["en"] > 5000
    assert all(500 < size < 2000 for language, size in sizes.items() if language != "en")
    assert (out / "eval/udpos").resolve() == data / "eval/udpos"
    halves = {name: (out / f"eval/{name}.tsv").read_text() for name in ("xnli/dev-en", "xnli/test-en", "xnli/test-de")}
    assert halves["xnli/dev-en"] == "en 0\tx\ty\nen 1\tx\ty\n"
    assert halves["xnli/test-de"] == halves["xnli/test-en"].replace("en", "de") == "de 2\tx\ty\nde 3\tx\ty\n"
    assert (out / "eval/panx/test-de.tsv").read_text().startswith("word2"), "sentences stay whole"
    assert (out / "eval/panx/train-en.tsv").resolve() == data / "eval/panx/train-en.tsv"
    learned = {task: (out / f"labels/{task}-train-de.tsv").read_text() for task in ("pos", "pan-x")}
    assert {*learned.values()} == {"word0\tNOUN\n.\tPUNCT\n\nword1\tNOUN\n.\tPUNCT\n"}
    assert (out / "labels/pos-test-de.tsv").read_text().startswith("word2")
    assert (out / "labels/help-topic-train-de.jsonl").exists()
    task = recipe.task("help-topic")
    found = {path.name for path in (out / "eval/help").iterdir()}
    assert found == {f"{split}-{one}.jsonl" for split in ("train", "dev", "test") for one in ("en", *task.languages)}
    texts = [path.read_text(encoding="utf-8") for path in (out / "eval/help").glob("*-en.jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    assert len(lines) == 60, "the short page is left out"
    monkeypatch.chdir(out)
    tests = {language: load_examples(task, "test", language, None) for language in ("en", "de")}
    assert [each.label for each in tests["en"]] == [each.label for each in tests["de"]]
    assert tests["de"][0].texts[0].startswith("de page")
