import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.languages import name_and_tag
from lingraft.errors import MissingExtraError
from lingraft.reports.run.page import PAGE_FILE, write
from lingraft.reports.run.records import RunRecords
from lingraft.reports.run.table import table
from tests.fixtures import once
from tests.reports.run.page import Page


def test_the_page_shows_the_source_the_search_and_every_row_with_its_values(
    made_up: SimpleNamespace, report: Artifact
) -> None:
    cells = Page(report.folder / PAGE_FILE).texts("th", "td")
    joined = " | ".join(cells)
    for row in made_up.languages():
        masked, task, cost = row.masked, row.task_scores["help-topic"], row.cost
        macro = task.others["macro_F1"]
        shares = [row.overlap / 6000, masked.mini_initial, masked.mini, masked.primary_initial, masked.primary]
        teraflops = [cost.flops / 1e12, row.whole_flops / 1e12]
        lines = [
            [f"{row.overlap:,}", *(f"{share:.1%}" for share in shares)],
            [
                f"{task.initial.mean:.1%}",
                *(f"{each.mean:.1%} ± 1.0" for each in (task.score, macro)),
                "32.1%",
                "512",
                "487",
            ],
            [f"{cost.elapsed_s:.1f}", *(f"{t:.1f}" for t in teraflops), f"{cost.flops / row.whole_flops:.1%}"],
        ]
        for line in lines:
            name = re.escape(name_and_tag(row.language))
            assert re.search(rf"{name} \| {row.depth} of 6[^|]* \| {re.escape(' | '.join(line))}", joined)
    assert {"12.3%", "14.0%", "14.6%", "72.5% ± 1.0", made_up.primary} <= set(cells)  # the source
    assert {"4,915,200", "361.4", "108.0", "1,474,560", "93.2", "6.5"} <= set(cells)
    assert {"4 of 6 searched", "11.9%", "600", "34.0", "8.0", "chosen", "stopped early"} <= set(cells)  # the search
    assert {row.embeddings for row in made_up.languages()} <= set(cells)


def test_the_page_loads_nothing_from_anywhere(report: Artifact) -> None:
    page = Page(report.folder / PAGE_FILE)
    text = (report.folder / PAGE_FILE).read_text(encoding="utf-8")
    references = [
        value
        for tag, attributes, _ in page.elements
        for name, value in attributes.items()
        if tag != "a" and name in {"src", "href", "xlink:href", "srcset", "data", "action"}
    ]
    references += re.findall(r"url\(([^)]*)\)", text)
    assert references
    assert all(reference and reference.startswith("#") for reference in references)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _, _ in page.elements}
    assert "@import" not in text


@pytest.mark.parametrize("made", ["report", "report_of_two"])
def test_references_inside_the_page_lead_somewhere_and_contents_name_every_section(
    made: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(made).folder / PAGE_FILE
    page, text = Page(path), path.read_text(encoding="utf-8")
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]*)', text)) <= set(ids)
    headings = [attributes["id"] for tag, attributes, _ in page.elements if tag == "h2"]
    links = [str(link["href"]).removeprefix("#") for link in page.attributes("a")]
    assert links[: len(headings)] == headings
    assert page.texts("a")[0] == page.texts("h2")[0] == "Results"


def test_the_page_can_be_read_without_seeing_it(report: Artifact) -> None:
    page = Page(report.folder / PAGE_FILE)
    tables, figures = page.attributes("table"), page.attributes("svg")
    assert len(page.texts("caption")) == len(tables)
    assert all("scope" in attributes for attributes in page.attributes("th"))
    assert len(figures) == len(page.texts("figcaption")) == 6 + 3 * 3
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in figures)
    headings = [int(tag[1]) for tag, _, _ in page.elements if tag in {"h1", "h2", "h3"}]
    assert headings.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(headings))
    assert page.attributes("html") == [{"lang": "en"}]


def test_every_plot_is_well_formed_and_in_the_page_s_colours(report: Artifact) -> None:
    text = (report.folder / PAGE_FILE).read_text(encoding="utf-8")
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    for plot in plots:
        ElementTree.fromstring(plot)
        assert not re.search(r"(?:fill|stroke): #", plot)
    style = text[: text.index("</style>")]
    assert {name for plot in plots for name in re.findall(r"var\(--(\w+)\)", plot)} <= set(
        re.findall(r"--(\w+):", style)
    )


def test_the_records_are_kept_beside_the_page_and_give_an_equal_one(
    made_up: SimpleNamespace, report: Artifact, odd: SimpleNamespace, tmp_path: Path
) -> None:
    assert RunRecords.load(report.folder) == made_up.records()
    assert write(RunRecords.load(odd.report.folder), tmp_path / "again").fingerprint == odd.report.fingerprint
    assert report.manifest.aligned_with == made_up.primary


@pytest.fixture(scope="module")
def odd(made_up: SimpleNamespace) -> SimpleNamespace:
    """A report of one finetuning seed and one language, which the gate refused; its labels are markup."""
    labels = ["<script>alert(1)</script>", "a & b", "Ελλάδα"]
    source = made_up.source(made_up.task(0.7, seeds=1, labels=labels))
    languages = [made_up.language("de", 2, made_up.task(0.4, seeds=1, labels=labels))]
    refused = {"de": "masked accuracy is 1.00% <lower> than the champion's"}

    records = RunRecords.of(source, languages, None, made_up.recipe, refused=refused)

    def make(folder: Path) -> None:
        write(records, folder / "out")

    report = Artifact.load(once.folder("odd-report", make) / "out", Kind.REPORT)
    return SimpleNamespace(
        report=report, path=report.folder / PAGE_FILE, labels=labels, refused=refused, table=table(records)
    )


def test_one_seed_has_no_deviation_and_labels_are_text_whatever_they_hold(odd: SimpleNamespace) -> None:
    for text in (odd.path.read_text(encoding="utf-8"), odd.table):
        assert "40.0%" in text
        assert "One finetuning seed: no ±." in text
        assert not re.search(r"\bnan\b|± \d", text)
    page = Page(odd.path)
    assert not page.attributes("script")
    assert all(page.texts("th").count(label) == 5 for label in odd.labels)


def test_without_a_task_its_columns_are_left_out_and_the_reason_is_given(
    made_up: SimpleNamespace, tmp_path: Path
) -> None:
    records = RunRecords.of(made_up.source(), [made_up.language("de", depth) for depth in (2, 6)])
    written = write(records, tmp_path / "out")
    page = Page(written.folder / PAGE_FILE)
    assert "trivial" not in page.texts("th")
    assert len(page.attributes("svg")) == 3 + 2
    assert any("the recipe names no task" in text for text in page.texts("p"))
    assert "trivial" not in table(records)
    assert "the recipe names no task" in table(records)


def test_the_recipe_is_shown_and_recorded(made_up: SimpleNamespace, odd: SimpleNamespace) -> None:
    page = Page(odd.path)
    assert Recipe.parse(page.texts("pre")[-1]) == made_up.recipe
    assert any("Test: 17.3% of documents" in text for text in page.texts("li"))
    assert odd.report.manifest.recipe == made_up.recipe.model_dump(mode="json")


def test_the_summary_compares_with_standard_adaptation(made_up: SimpleNamespace, report: Artifact) -> None:
    by_depth = {depth: [r for r in made_up.languages() if r.depth == depth] for depth in (2, 6)}
    kept = sum(r.masked.primary for r in by_depth[2]) / sum(r.masked.primary for r in by_depth[6])
    sentences = Page(report.folder / PAGE_FILE).texts("li")
    first = next(
        sentence for sentence in sentences if sentence.startswith("Over 2 of 6 layers (German, Turkish, Greek)")
    )
    assert (
        f"keeps {kept:.1%} of its masked-token accuracy and is 1.0 points below it in zero-shot accuracy on help-topic."
        in first
    )


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    made_up: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    records = RunRecords.of(made_up.source(), [made_up.language("de", 2)])
    with pytest.raises(MissingExtraError, match=r"jinja2 is not installed.*lingraft\[report\]"):
        write(records, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "German" in table(records)


def test_what_the_gate_refused_is_told_with_its_reason_and_only_then(odd: SimpleNamespace, report: Artifact) -> None:
    said = Page(odd.path).texts("div", "p", "li")
    assert "German (de): masked accuracy is 1.00% <lower> than the champion's" in said
    [heading] = [
        each for each in said if each.startswith("Registered, and not promoted by the gate") and each[-1] == ":"
    ]
    assert "nothing of a language that never had one" in heading
    assert dict(RunRecords.load(odd.report.folder).refused) == odd.refused
    whole = Page(report.folder / PAGE_FILE).texts("li")
    assert "Greek (el): it finds less than the champion." in whole
    assert not any(text.startswith("German (de): masked accuracy") for text in whole)
