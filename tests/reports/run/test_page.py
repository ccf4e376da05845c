import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.errors import MissingExtraError
from lingraft.reports.run.page import PAGE_FILE, loss_curves, write
from lingraft.reports.run.records import RunRecords
from lingraft.reports.run.tables import costs, scores
from tests.reports.run.page import Page


@pytest.fixture
def page(report: Artifact) -> Page:
    return Page(report.folder / PAGE_FILE)


def test_the_page_has_every_score_and_cost(made_up: SimpleNamespace, page: Page) -> None:
    cells = " | ".join(page.texts("th", "td"))
    for score in scores(made_up.records(), further=True):
        assert score.name in page.texts("th")
        assert " | ".join(score.cells[1:]) in cells
    for row in costs(made_up.records())[1]:
        assert " | ".join(row) in cells


def test_the_page_has_answers_verdicts_failures_and_warnings(page: Page) -> None:
    rows = page.texts("tr")
    assert "help-topicGermanWie addiere ich eine Spalte? Calc [scalc] 93%" in rows
    assert any(row.startswith("German (de)promoted version 3masked accuracy on the primary is 12.24%") for row in rows)
    assert "Greek (el)not promoted version 3it finds less than the champion." in rows
    assert "Swahili (sw)failedits text holds no document" in rows
    assert page.texts("p")[0].startswith("help-topic: no test example of sdraw is recognised in English,")
    links = [str(link["href"]) for link in page.attributes("a")]
    assert [link.partition("/runs/")[2][:32] for link in links] == ["c" * 32, "d" * 32, "a" * 32]


def test_words_stand_beside_their_nearest_ones_before_and_after_once_a_language(page: Page) -> None:
    assert "Datei<rule> 0.31file 0.81" in page.texts("tr")
    assert [each.get("lang") for each in page.attributes("bdi")].count("el") == 3  # adapted over two numbers of layers
    assert any(text.startswith("Alignment failed, from text alone (923 shared pieces") for text in page.texts("p"))


def test_curves_are_drawn_of_what_was_trained(made_up: SimpleNamespace, page: Page) -> None:
    titles = ["Pretraining in English", "Finetuning in English", "Learning languages"]
    assert page.texts("figcaption") == titles
    assert all(str(img["src"]).startswith("data:image/png;base64,") and img["alt"] for img in page.attributes("img"))
    imported = made_up.source(pretraining_history=[], finetuning_history={"search": {1: []}})
    assert [each.title for each in loss_curves(RunRecords.of(imported, made_up.languages()))] == titles[2:]


def test_the_page_loads_nothing_from_anywhere_and_can_be_read_without_seeing_it(report: Artifact, page: Page) -> None:
    text = (report.folder / PAGE_FILE).read_text(encoding="utf-8")
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _, _ in page.elements}
    assert not re.search(r"@import|url\(", text)
    assert all("scope" in attributes for attributes in page.attributes("th"))
    assert page.attributes("html") == [{"lang": "en"}]


def test_what_records_hold_is_text_and_equal_records_give_equal_pages(made_up: SimpleNamespace, tmp_path: Path) -> None:
    labels = ["<script>alert(1)</script>", "a & b"]
    languages = [made_up.language("de", 2, made_up.task(0.4, labels=labels))]
    records = RunRecords.of(made_up.source(), languages, failed={"tr": labels[0]})
    made = write(records, tmp_path / "out")
    assert labels[0] in Page(made.folder / PAGE_FILE).texts("td")
    assert write(RunRecords.load(made.folder), tmp_path / "again").fingerprint == made.fingerprint


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_without_an_extra_the_error_says_what_to_install(
    made_up: SimpleNamespace, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"lingraft\[report\]"):
        write(RunRecords.of(made_up.source(), made_up.languages()), tmp_path / "out")
    assert not (tmp_path / "out").exists()
