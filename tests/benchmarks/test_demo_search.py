"""The demo's index: what it is asked, what it finds, and that asking leaves it as it is."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import demo_search
from benchmarks.demo_compare import Demo
from benchmarks.demo_search import HelpSearch, accuracy, ask, run, training_pairs, write_examples, write_index
from lingraft.artifacts.files import sha256_of
from lingraft.config.tasks import Finetuning
from lingraft.data import text
from lingraft.data.documents import Document
from lingraft.data.text import load_split, load_text
from lingraft.errors import LingraftError
from lingraft.huggingface.export import export_hf
from lingraft.jobs.data import LanguageDirs
from lingraft.model.loading import load_embeddings
from lingraft.stages.task_tests import TaskInputs, task_test
from lingraft.tasks.ranking import Answers
from tests.made_up import write
from tests.workshop import Workshop


def test_pairs_of_a_page_share_no_line_but_what_is_the_same() -> None:
    pairs = [*training_pairs(Document("page", "title\none\ntwo\nthree\nfour"))]
    assert pairs == [("title", "one two three four"), ("title two four", "one three")]
    assert [*training_pairs(Document("page", "title\none"))] == [("title", "one")]
    assert [*training_pairs(Document("page", "title"))] == []


def test_an_index_finds_the_nearest_by_cosine(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    pages_PE = torch.randn(60, 8, generator=generator) * torch.rand(60, 1, generator=generator)
    questions_NE = 3 * pages_PE[:20] + 0.1 * torch.randn(20, 8, generator=generator)
    cosines_NP = torch.nn.functional.normalize(questions_NE) @ torch.nn.functional.normalize(pages_PE).T
    file = tmp_path / "pages.faiss"
    write_index(pages_PE, file)
    found_NK = ask(file, questions_NE)
    assert found_NK.tolist() == cosines_NP.topk(10).indices.tolist()


def test_accuracy_counts_the_first_page_and_the_first_ten() -> None:
    found_NK = torch.arange(12).expand(4, 12)
    answers = Answers.of([{0: 1.0}, {9: 1.0}, {10: 1.0}, {0: 1.0}])
    assert accuracy(found_NK, answers) == (0.5, 0.75)


def test_an_index_that_is_asked_in_other_languages_finds_what_judging_finds_and_stays_as_it_is(
    help_search: HelpSearch, workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    run(help_search)
    said, file = capsys.readouterr().out, help_search.index
    assert said.count(f"sha256 {sha256_of(file)}") == 2
    assert "German (de)" in said
    record = json.loads((help_search.work / "search.json").read_text())
    assert (help_search.work / "search.png").read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_size > 4 * record["pages"] * help_search.model.net.width

    for language, scores in record["languages"].items():
        learned = load_embeddings(workshop.embeddings[language])
        test = task_test(
            TaskInputs(help_search.recipe.task(), [help_search.model], None, learned.tokenizer, help_search.source)
        )
        assert test
        help_search.model.swap_in(learned)
        assert scores["found"]["learned"]["at_1"] == pytest.approx(test.judge(help_search.model).score)
        assert scores["found"]["english"]["at_1"] == pytest.approx(test.baselines()["source_tokenizer"].mean)
        assert scores["found"]["learned"]["at_1"] < scores["found"]["learned"]["at_10"] < 1


def test_pages_that_are_searched_are_no_pages_that_were_trained_on(help_search: HelpSearch, workshop: Workshop) -> None:
    data, pages = help_search.data, load_split(load_text(workshop.texts["en"], "en"), "test")
    searched = {json.loads(line)["_id"] for line in (data / "en" / "corpus.jsonl").read_text().splitlines()}
    assert searched == {page.name for page in pages}
    seen = (data / "train.jsonl").read_text() + (data / "dev.jsonl").read_text()
    assert not [page.name for page in pages if page.text.split("\n")[1] in seen]


@pytest.mark.integration
def test_the_guide_asks_the_index_by_an_exported_model(help_search: HelpSearch) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "search-an-index.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    hf, learned = help_search.work / "hf", help_search.learned("de")
    export_hf(help_search.demo.primary, hf, learned, help_search.model.folder)
    question = help_search.searches["de"].queries[0]
    found: dict[str, Any] = {}
    exec(
        code.replace("pages.faiss", str(help_search.index))
        .replace("work/hf/de", str(hf))
        .replace("Wie sortiere ich eine Spalte?", question),
        found,
    )
    help_search.model.swap_in(rows := load_embeddings(learned))
    ours = ask(help_search.index, help_search.vectors([question], rows.tokenizer))
    assert found["pages"].tolist() == ours.tolist()


def test_pages_without_translations_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    source = write(tmp_path / "source", ("de",))
    (source / "de.jsonl").write_text((source / "de.jsonl").read_text().replace("page-", "Seite-"))
    text.prepare(workshop.recipe.with_folder(source), "de", tmp_path / "de")
    with pytest.raises(LingraftError, match=r"no test page in 'de'.*pages that are translations"):
        write_examples(tmp_path / "data", {"en": workshop.texts["en"], "de": tmp_path / "de"}, "en")


@pytest.fixture
def help_search(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HelpSearch:
    """The search over a finished tiny project, finetuned for a moment."""
    monkeypatch.setattr(demo_search, "FINETUNING", Finetuning(epochs=1, learning_rate=1e-3, seeds=(demo_search.SEED,)))
    work = tmp_path / "search"
    shutil.copytree(workshop.primary, work / "primary")
    for language in workshop.recipe.languages:
        made = (workshop.texts, workshop.tokenizers, workshop.blocks)
        for folders, out in zip(made, LanguageDirs.under(work, language), strict=True):
            shutil.copytree(folders[language], out)
    for language, folder in workshop.embeddings.items():
        shutil.copytree(folder, work / f"learned-{language}")
    return HelpSearch(Demo(workshop.recipe, work), work)
