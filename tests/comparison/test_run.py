"""A comparison run for real on made-up text: what its records hold, what fails, and how it goes on."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import ProvenanceMismatchError
from lingraft.artifacts.manifest import Kind
from lingraft.comparison import runner as comparison
from lingraft.comparison.evaluate import ReferenceJob, evaluate_language, evaluate_source
from lingraft.comparison.finetuned_models import FinetunedModels
from lingraft.comparison.plan import ALIGNMENT, plan_comparison
from lingraft.comparison.records import eval_item, load_eval_result
from lingraft.data.blocks import open_split
from lingraft.jobs.data import LanguageDirs
from lingraft.reports.paper.records import PaperRecords
from lingraft.reports.paper.report import MARKDOWN_FILE, PAGE_FILE
from lingraft.stages import adapt, build_mini, finetune, pretrain
from lingraft.stages.results import ITEMS_FILE
from lingraft.tasks import item_counts
from lingraft.tasks.item_counts import ItemCounts
from lingraft.training import masked_lm
from tests.comparison.compared import SAID_FILE, SMALL, Compared, closing_line
from tests.comparison.project import ARMS, CHECKPOINTS, RECIPE, recipe
from tests.workshop import changed

SEEDS = {"topic": {1, 2}, "paws-x": {3}, "masked": {1}}
JUDGED = {"de": {"topic", "paws-x", "masked"}, "sw": {"topic", "masked"}}
"""Tasks by language; pairs are in German only."""


@pytest.fixture(scope="module")
def compared() -> Compared:
    return Compared.shared(targets=[*JUDGED])


def without_clock(records: PaperRecords) -> dict[str, Any]:
    """All that two runs of the same recipe must agree in."""
    found = records.model_dump(mode="json")
    for cell in found["cells"]:
        for point in cell["points"]:
            del point["elapsed_s"]
    return found


def test_there_is_a_cell_for_every_arm_language_and_task(compared: Compared) -> None:
    wanted = {
        (system, depth, language, task)
        for (system, depth), (language, tasks) in itertools.product(ARMS, JUDGED.items())
        for task in tasks
    }
    assert {(c.system, c.depth, c.language, c.task) for c in compared.records.cells} == wanted
    assert len(compared.records.cells) == len(wanted)


def test_curves_go_from_the_initial_embeddings_to_the_end_with_every_seed(compared: Compared) -> None:
    found = [cell for cell in compared.records.cells if cell.language == "de"]
    assert found
    for cell in found:
        assert cell.failed is None
        assert [point.step for point in cell.points] == CHECKPOINTS
        assert (cell.points[0].flops, cell.points[0].elapsed_s) == (0, 0)
        assert all(before.flops < after.flops for before, after in itertools.pairwise(cell.points))
        assert all(set(point.scores.by_seed) == SEEDS[cell.task] for point in cell.points)
    folder = compared.out / "adaptation/minijoint-1-seed-1/de/checkpoints/step-00000001"
    cost = Artifact.load(folder, Kind.EMBEDDINGS).manifest.cost
    point = compared.cell("MINIJOINT", 1, "de", "topic").points[1]
    assert (point.flops, point.elapsed_s) == (cost.flops, cost.elapsed_s)
    shallow, base, post = (
        compared.cell(system, depth, "de", "masked").points[-1].flops
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
        assert cell.points == ()
    said = (compared.out.parent / SAID_FILE).read_text(encoding="utf-8")
    assert "failed: text of 'sw': " in said
    for job in ("tokenizer of 'sw'", "blocks of 'sw'", "adaptation of 'sw'"):
        assert f"left out: {job}" in said
    planned = len(compared.records.cells) + len(compared.records.source_cells)
    tables = compared.out / MARKDOWN_FILE
    assert closing_line(said).startswith(f"{len(holes)} of {planned} cells are missing; {tables} says why.")
    assert "holds no text for language 'sw'" in tables.read_text(encoding="utf-8")


def test_trivial_baselines_are_those_of_the_judged_examples(compared: Compared) -> None:
    by_task = {task.name: task.baselines for task in compared.records.tasks}
    assert by_task["paws-x"] == {"de": 0.5}
    assert by_task["topic"].keys() == by_task["masked"].keys() == {"de"}
    blocks = open_split(Artifact.load(compared.out / "blocks/de", Kind.BLOCKS), "test").all()
    ordinary = blocks[blocks >= 5]
    assert by_task["masked"]["de"] == pytest.approx(float(torch.bincount(ordinary).max() / len(ordinary)))


def test_the_source_language_is_scored_by_every_model_that_learned_tasks(compared: Compared) -> None:
    models = {("BL_BASE", 2), ("MINIPOST", 2), ("BL_SMALL", 1), ("MINIJOINT", 2), ("MINIJOINT", 1)}
    found = {(c.system, c.depth, c.task): c.scores for c in compared.records.source_cells}
    assert found.keys() == {(*model, task) for model in models for task in SEEDS}
    assert all(scores and set(scores.by_seed) == SEEDS[task] for (_, _, task), scores in found.items())
    for task in SEEDS:
        assert found["BL_BASE", 2, task] == found["MINIPOST", 2, task]


def test_a_finetuned_mini_model_is_the_bottom_of_its_primary(compared: Compared) -> None:
    primary = Artifact.load(compared.out / "primary/2-layers-heads-1-2-seed-1", Kind.PRIMARY)
    for layers in (1, 2):
        folder = compared.out / f"task/2-layers-heads-1-2-seed-1/topic/{layers}-layers/seed-1"
        manifest = Artifact.load(folder, Kind.TASK).manifest
        assert manifest.aligned_with == primary.fingerprint
        assert manifest.details["shape"]["layers"] == layers
        assert any(name.startswith("layers.1.") for name in manifest.shapes["body"]) == (layers == 2)


def test_records_and_report_say_what_is_known_of_tasks_and_languages(compared: Compared) -> None:
    facts = {task.name: (task.title, task.metric, task.appendix) for task in compared.records.tasks}
    assert facts == {
        "topic": ("topic", "accuracy", False),
        "paws-x": ("PAWS-X", "accuracy", False),
        "masked": ("masked tokens", "accuracy", True),  # left out of means over tasks
    }
    languages = {one.language: one for one in compared.records.languages}
    lines = (compared.out / "text/de/train.jsonl").read_text(encoding="utf-8").splitlines()
    assert languages["de"].text_bytes == sum(len(json.loads(line)["text"].encode()) for line in lines)
    assert (languages["sw"].text_bytes, languages["sw"].word_order) == (None, "SVO")
    assert (compared.report.folder / PAGE_FILE).is_file()
    so_far = PaperRecords.model_validate_json((compared.out / "records.json").read_text(encoding="utf-8"))
    assert so_far == compared.records


def test_the_last_scores_are_kept_item_by_item(compared: Compared) -> None:
    folders = sorted(path.parent for path in (compared.out / "judged").rglob(ITEMS_FILE))
    assert folders
    for folder in folders:
        for cell in load_eval_result(folder).cells:
            by_seed = cell.points[-1].scores.by_seed
            items = item_counts.load(folder / ITEMS_FILE)
            kept = {seed: items[eval_item(cell.task, seed)].score for seed in by_seed}
            assert kept == pytest.approx(by_seed)


@pytest.mark.parametrize(("precision", "reduced"), [("auto", False), ("bf16", True)])
def test_judging_is_in_bf16_only_where_the_recipe_asks_for_it(
    compared: Compared, monkeypatch: pytest.MonkeyPatch, precision: str, reduced: bool
) -> None:
    seen, counts = [], masked_lm.accuracy_counts

    def watched(*arguments: Any) -> dict[int, ItemCounts]:
        seen.append(torch.is_autocast_enabled("cpu"))
        return counts(*arguments)

    monkeypatch.setattr(masked_lm, "accuracy_counts", watched)
    planned = plan_comparison(compared.recipe.model_copy(update={"precision": precision}))
    arm, out = planned.arms[0], compared.out
    bodies = FinetunedModels(
        planned.primary(arm.primary), out / "primary" / arm.primary, out / "task" / arm.primary
    ).restricted_to("masked")
    evaluate_source(bodies, LanguageDirs.under(out, "en"))
    evaluate_language(arm, bodies, LanguageDirs.under(out, "de"), out / "adaptation" / arm.name / "de", "de")
    assert seen == [reduced] * (1 + len(CHECKPOINTS))


def test_alignment_is_measured_over_lines_where_there_are_enough(compared: Compared, tmp_path: Path) -> None:
    planned, out = plan_comparison(compared.recipe), compared.out
    arm = planned.arms[0]
    bodies = FinetunedModels(
        planned.primary(arm.primary), out / "primary" / arm.primary, out / "task" / arm.primary
    ).restricted_to(ALIGNMENT)
    english = LanguageDirs.under(out, "en")
    job = ReferenceJob(recipe=arm.recipe, models=bodies, dirs=english, language="en", out=tmp_path / "reference")
    trivial = []
    for count in (10, 120):
        lines = tmp_path / f"{count}.tsv"
        lines.write_text("".join(f"ba de ki {n}\tmu na pe {n}\n" for n in range(count)), encoding="utf-8")
        recipe = changed(arm.recipe, "alignment", judged={"de": str(lines)})
        judged, _ = evaluate_language(
            arm=replace(arm, recipe=recipe),
            models=bodies,
            target=LanguageDirs.under(out, "de"),
            curve=out / "adaptation" / arm.name / "de",
            language="de",
            reference=job.get_or_make().folder if count == 10 else tmp_path / "reference",
        )
        assert judged.is_complete, judged
        trivial.append(judged.baselines[ALIGNMENT])
    assert trivial[1] == pytest.approx(1 / 60)
    assert trivial[0] != trivial[1]


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
        comparison.run(settings, tmp_path / "out")
    with monkeypatch.context() as patch, counted(patch) as after:
        again = Compared.run(settings, tmp_path / "out")
    assert [*before, *after] == JOBS
    assert without_clock(again.records) == without_clock(small.records)


def test_what_is_finished_is_not_run_again_nor_told_judgement_by_judgement(
    small: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[PaperRecords] = []
    with monkeypatch.context() as patch, counted(patch) as done:
        report = comparison.run(small.recipe, small.copied(tmp_path).out, heard.append)
    assert done == []
    assert heard == [small.records, small.records]
    assert PaperRecords.load(report.folder) == small.records


def test_a_language_that_is_added_later_is_all_that_is_run(
    small: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = small.recipe.model_copy(update={"targets": ("de", "tr")})
    with monkeypatch.context() as patch, counted(patch) as done:
        records = Compared.run(more, small.copied(tmp_path).out).records
    assert done == ["adapt", "adapt"]
    assert {cell.language for cell in records.cells if cell.failed is None} == {"de", "tr"}


def test_results_of_other_settings_stop_the_run_with_what_differs(small: Compared, tmp_path: Path) -> None:
    changed = small.recipe.adaptation.model_copy(update={"steps": 7})
    with pytest.raises(ProvenanceMismatchError, match=r"adaptation\.steps was 4, is 7"):
        comparison.run(small.recipe.model_copy(update={"adaptation": changed}), small.copied(tmp_path).out)


def test_a_comparison_of_aligned_rows_starts_every_system_from_the_same(tmp_path: Path) -> None:
    aligned = {"adaptation": RECIPE["adaptation"] | {"initialisation": "aligned"}}
    found = Compared.run(recipe(tmp_path, **SMALL | aligned), tmp_path / "out")
    learned = [*found.out.glob("adaptation/*/de/**/manifest.json")]
    starts = {
        Artifact.load(each.parent, Kind.EMBEDDINGS).manifest.data_hashes["initial"]
        for each in learned
        if each.parent.name == "embeddings"
    }
    assert len(starts) == 1
    assert all(cell.failed is None for cell in found.records.cells)
