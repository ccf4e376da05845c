"""A comparison run for real on made-up text: what its records hold, what fails, and how it goes on."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import ProvenanceMismatchError
from lingraft.artifacts.manifest import Kind
from lingraft.cli import app
from lingraft.comparison import runner
from lingraft.comparison.jobs import comparison_jobs
from lingraft.comparison.page import HTML_FILE
from lingraft.comparison.plan import TRANSLATIONS, plan_comparison
from lingraft.comparison.records import RECORDS_FILE, EvaluatedCells, Records
from lingraft.data.blocks import open_split
from lingraft.stages import adapt, build_mini, finetune, pretrain
from lingraft.training import masked_lm
from tests.comparison.compared import SAID_FILE, SMALL, Compared, closing_line
from tests.comparison.project import ARMS, CHECKPOINTS, RECIPE, recipe

SEEDS = {"topic": {1, 2}, "paws-x": {3}, "masked": {1}}
JUDGED = {"de": {"topic", "paws-x", "masked"}, "sw": {"topic", "masked"}}
"""Tasks by language; pairs are in German only."""


@pytest.fixture(scope="module")
def compared() -> Compared:
    return Compared.shared(targets=[*JUDGED])


def without_clock(records: Records) -> dict[str, Any]:
    """All that two runs of the same recipe must agree in."""
    found = records.model_dump(mode="json")
    for cell in found["cells"]:
        del cell["elapsed_s"], cell["start_s"]
    return found


def test_there_is_a_cell_for_every_arm_language_and_task(compared: Compared) -> None:
    wanted = {
        (system, depth, language, task)
        for (system, depth), (language, tasks) in itertools.product(ARMS, JUDGED.items())
        for task in tasks
    }
    assert {(c.system, c.depth, c.language, c.task) for c in compared.learned} == wanted
    assert len(compared.learned) == len(wanted)


def test_curves_go_from_the_initial_embeddings_to_the_end_with_every_seed(compared: Compared) -> None:
    found = [cell for cell in compared.learned if cell.language == "de"]
    assert found
    for cell in found:
        assert cell.failed is None
        assert list(cell.steps) == CHECKPOINTS
        assert (cell.flops[0], cell.elapsed_s[0]) == (0, 0)
        assert all(before < after for before, after in itertools.pairwise(cell.flops))
        assert {*cell.scores} == SEEDS[cell.task]
        assert all(len(scores) == len(CHECKPOINTS) for scores in cell.scores.values())
    folder = compared.out / "adaptation/minijoint-1-seed-1/de/checkpoints/step-00000001"
    cost = Artifact.load(folder, Kind.EMBEDDINGS).manifest.cost
    cell = compared.cell("MINIJOINT", 1, "de", "topic")
    assert (cell.flops[1], cell.elapsed_s[1]) == (cost.flops, cost.elapsed_s)
    shallow, base, post = (
        compared.cell(system, depth, "de", "masked").flops[-1]
        for system, depth in (("MINIJOINT", 1), ("BL_BASE", 2), ("MINIPOST", 1))
    )
    assert shallow < base == post


def test_a_language_without_text_is_a_hole_that_says_so_everywhere(compared: Compared) -> None:
    holes = [cell for cell in compared.records.cells if cell.failed]
    assert {cell.language for cell in holes} == {"sw"}
    assert len(holes) == len(ARMS) * len(JUDGED["sw"])
    for cell in holes:
        assert "text of 'sw': " in cell.failed
        assert "holds no text for language 'sw'" in cell.failed
        assert cell.steps == ()
    said = (compared.out.parent / SAID_FILE).read_text(encoding="utf-8")
    assert "failed: text of 'sw': " in said
    for job in ("tokenizer of 'sw'", "blocks of 'sw'", "adaptation of 'sw'"):
        assert f"left out: {job}" in said
    page = compared.report.folder / HTML_FILE
    planned = len(compared.records.cells)
    assert closing_line(said).startswith(f"{len(holes)} of {planned} cells are missing; {page} says why.")
    assert "holds no text for language" in page.read_text(encoding="utf-8")


def test_trivial_answers_are_those_to_the_judged_examples(compared: Compared) -> None:
    trivial = {cell.task: cell.trivial for cell in compared.learned if cell.language == "de"}
    assert trivial["paws-x"] == 0.5
    blocks = open_split(Artifact.load(compared.out / "blocks/de", Kind.BLOCKS), "test").all()
    ordinary = blocks[blocks >= 5]
    assert trivial["masked"] == pytest.approx(float(torch.bincount(ordinary).max() / len(ordinary)))


def test_the_source_language_is_scored_by_every_model_that_learned_tasks(compared: Compared) -> None:
    models = {("BL_BASE", 2), ("MINIPOST", 2), ("BL_SMALL", 1), ("MINIJOINT", 2), ("MINIJOINT", 1)}
    source = [cell for cell in compared.records.cells if cell.language == "en"]
    found = {(c.system, c.depth, c.task): c.scores for c in source}
    assert found.keys() == {(*model, task) for model in models for task in SEEDS}
    assert all({*scores} == SEEDS[task] for (_, _, task), scores in found.items())
    for task in SEEDS:
        assert found["BL_BASE", 2, task] == found["MINIPOST", 2, task]


def test_the_records_so_far_are_those_of_the_end(compared: Compared) -> None:
    so_far = Records.load(compared.out / RECORDS_FILE)
    assert so_far == compared.records
    assert so_far.metrics == {"topic": "accuracy", "paws-x": "accuracy", "masked": "accuracy"}


@pytest.mark.parametrize(("precision", "reduced"), [("auto", False), ("bf16", True)])
def test_evaluation_is_in_bf16_only_where_the_recipe_asks_for_it(
    compared: Compared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, precision: str, reduced: bool
) -> None:
    seen, accuracy = [], masked_lm.accuracy

    def watched(*arguments: Any) -> dict[int, float]:
        seen.append(torch.is_autocast_enabled("cpu"))
        return accuracy(*arguments)

    monkeypatch.setattr(masked_lm, "accuracy", watched)
    planned = plan_comparison(compared.recipe.model_copy(update={"precision": precision}))
    wanted = {"evaluate-source-masked-1-layers-heads-1-seed-1", "evaluate-de-masked-bl-small-1-seed-1"}
    jobs = [job for job in comparison_jobs(planned, compared.out) if job.name in wanted]
    for number, job in enumerate(jobs):
        job.model_copy(update={"out": tmp_path / str(number)}).make()
    assert seen == [reduced] * (1 + len(CHECKPOINTS))


def test_translations_are_found_among_lines_that_nothing_was_learned_from(compared: Compared, tmp_path: Path) -> None:
    lines = tmp_path / "lines.tsv"
    judged = compared.recipe.alignment.model_copy(update={"judged": {"de": str(lines)}})
    planned = plan_comparison(compared.recipe.model_copy(update={"alignment": judged}))
    job = next(job for job in comparison_jobs(planned, compared.out) if job.made.name == TRANSLATIONS)
    cells = []
    for count in (10, 120):
        lines.write_text("".join(f"ba de ki {n}\tmu na pe {n}\n" for n in range(count)), encoding="utf-8")
        out = tmp_path / str(count)
        job.model_copy(update={"out": out}).make()
        cells += EvaluatedCells.load(out).cells
    assert "too few lines" in cells[0].failed
    assert (cells[1].failed, cells[1].trivial) == (None, pytest.approx(1 / 60))


@contextlib.contextmanager
def counted(patch: pytest.MonkeyPatch, stop_after: int | None = None) -> Iterator[list[str]]:
    """What is trained meanwhile; as if somebody pressed Ctrl-C in the midst of the training after so many."""
    done: list[str] = []

    def watched(place: ModuleType, name: str) -> None:
        real = getattr(place, name)

        def stage(*arguments: Any, **named: Any) -> Any:
            if stop_after is not None and len(done) == stop_after:
                raise KeyboardInterrupt
            made = real(*arguments, **named)
            done.append(name)
            return made

        patch.setattr(place, name, stage)

    for module in (pretrain, build_mini, adapt, finetune):
        watched(module, module.__name__.rpartition(".")[2])
    yield done


JOBS = ["pretrain", "build_mini", "adapt", "adapt", "finetune"]


@pytest.fixture(scope="module")
def small() -> Compared:
    """Two systems, one language and one task, run without a stop."""
    return Compared.shared(**SMALL)


def test_a_comparison_that_was_stopped_goes_on_to_the_same_records(
    small: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = recipe(tmp_path, **SMALL)
    with monkeypatch.context() as patch, counted(patch, stop_after=3) as before, pytest.raises(KeyboardInterrupt):
        runner.run(settings, tmp_path / "out")
    with monkeypatch.context() as patch, counted(patch) as after:
        again = Compared.run(settings, tmp_path / "out")
    assert [*before, *after] == JOBS
    assert without_clock(again.records) == without_clock(small.records)


def test_what_is_finished_is_not_run_again(small: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, counted(patch) as done:
        again = Compared.run(small.recipe, small.copied(tmp_path).out)
    assert done == []
    assert again.records == small.records


def test_a_language_that_is_added_later_is_all_that_is_run(
    small: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = small.recipe.model_copy(update={"targets": ("de", "tr")})
    with monkeypatch.context() as patch, counted(patch) as done:
        records = Compared.run(more, small.copied(tmp_path).out).records
    assert done == ["adapt", "adapt"]
    assert {cell.language for cell in records.cells if cell.failed is None} == {"en", "de", "tr"}


def test_results_of_other_settings_stop_the_run_with_what_differs(small: Compared, tmp_path: Path) -> None:
    changed = small.recipe.adaptation.model_copy(update={"steps": 7})
    with pytest.raises(ProvenanceMismatchError, match=r"adaptation\.steps was 4, is 7"):
        runner.run(small.recipe.model_copy(update={"adaptation": changed}), small.copied(tmp_path).out)


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {as_toml(each)}' for key, each in value.items())} }}"
    return f"[{', '.join(map(as_toml, value))}]" if isinstance(value, list) else json.dumps(value)


def test_the_command_compares_starts_side_by_side_and_writes_a_page(tmp_path: Path) -> None:
    adaptation = RECIPE["adaptation"] | {"initialisation": "aligned"}
    starts = {"overlap": {"adaptation": {"initialisation": "overlap"}}, "aligned": {}}
    paper = SMALL["paper"] | {"starts": starts, "without_curves": ["masked"]}
    made = recipe(tmp_path, **SMALL | {"adaptation": adaptation, "paper": paper})
    raw = made.model_dump(mode="json", exclude_none=True)
    lines = [f"{key} = {as_toml(value)}" for key, value in raw.items()]
    (tmp_path / "recipe.toml").write_text("\n".join(lines), encoding="utf-8")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    page = tmp_path / "out" / "report" / HTML_FILE
    assert str(page) in done.output
    assert all(f"from {start}" in page.read_text(encoding="utf-8") for start in starts)
    cells = Records.load(tmp_path / "out" / RECORDS_FILE).cells
    assert {cell.start for cell in cells if cell.language == "de"} == {*starts}
    for cell in cells:
        assert cell.failed is None
        assert (cell.start_s > 0) == (cell.start == "aligned")
        if cell.language == "de":
            assert len(cell.steps) == (2 if cell.task == "masked" else len(CHECKPOINTS))
    learned = [*(tmp_path / "out/adaptation").glob("*-aligned/de/embeddings")]
    marks = {Artifact.load(each, Kind.EMBEDDINGS).manifest.data_hashes["initial"] for each in learned}
    assert (len(learned), len(marks)) == (2, 1)  # both systems start from the same rows
