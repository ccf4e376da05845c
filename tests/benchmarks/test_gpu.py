"""The check of a GPU on the CPU: exactness, limits of time, records that are gone on with, and the whole, tiny."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import exactness, pack, parts, roofline, training
from benchmarks.gpu.page import OtherDeviceError, write
from benchmarks.gpu.parts import Given, Part
from benchmarks.serving.words import words
from benchmarks.speed import side
from benchmarks.speed.cells import Cell, Shape, Training
from benchmarks.speed.measure import fastest, tried_together
from benchmarks.speed.settings import Settings
from lingraft.comparison.plan import plan_comparison
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.errors import TextError
from lingraft.reports.cost.bill import bills
from tests.test_boundaries import import_without

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
ABSENT = ("datasets", "kfp", "kserve", "kubernetes", "matplotlib", "mlflow", "optuna", "PIL", "pyarrow", "scipy")
ABSENT += ("typer", "zstandard")
FOR_SERVING = ("babel", "onnx", "onnx_ir", "prometheus_client")
HIDE = f"""
from importlib.machinery import PathFinder
found = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {ABSENT} else found(name, path, target)
PathFinder.find_spec = staticmethod(find_spec)
"""
"""Makes a Python one that lacks these packages, whoever asks."""


@pytest.mark.parametrize("name", exactness.UNCOMPILED)
def test_a_cpu_computes_what_a_cpu_does(name: str) -> None:
    found = exactness.CHECKS[name](CPU, exactness.TINY)
    assert len(found) > 3
    assert [finding for finding in found if not finding.holds] == []


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # of torch, about what its own compiler does
@pytest.mark.parametrize("family", ["roberta", pytest.param("modern", marks=pytest.mark.nightly)])
def test_compiled_layers_and_loss_have_the_values_and_gradients_of_plain_ones(family: str) -> None:
    found = [*exactness.compare_fused(CPU, exactness.TINY, family, "bf16")]
    assert [finding for finding in found if not finding.holds] == []
    assert min(finding.difference for finding in found) > 0  # they are other kernels, in bfloat16


def test_an_encoder_that_is_changed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = exactness.swap
    monkeypatch.setattr(exactness, "swap", lambda encoder, vocabulary: swapped(encoder, encoder.vocabulary))
    other = exactness.Size.blocks
    monkeypatch.setattr(exactness.Size, "blocks", lambda size: other(size).flip(1))
    monkeypatch.setattr(exactness.copy, "deepcopy", lambda encoder: exactness.TINY.encoder("roberta", dropout=0.5))
    broken = [finding.name for finding in exactness.forward(CPU, exactness.TINY) if not finding.holds]
    assert "roberta: loss" in broken
    assert "roberta: gradient of the table" in broken


def test_a_training_that_does_not_go_on_where_it_was_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness.CheckpointManager, "load_newest", lambda manager: None)
    broken = [finding.difference for finding in exactness.resume(CPU, exactness.TINY) if not finding.holds]
    assert broken == [torch.inf, torch.inf]


def test_training_and_the_comparison_import_without_what_a_bare_machine_lacks() -> None:
    stages = [f"lingraft.stages.{name}" for name in ("pretrain", "build_mini", "adapt", "finetune", "evaluate")]
    checks = ["benchmarks.gpu.__main__", "benchmarks.gpu.comparison", "benchmarks.gpu.exactness", "benchmarks.gpu.page"]
    sides = ["benchmarks.gpu.environment", "benchmarks.gpu.training", "benchmarks.gpu.serving", "benchmarks.speed.own"]
    import_without(ABSENT + FOR_SERVING, *stages, *checks, *sides)


def part(name: str) -> Part:
    """A part of which a run needs only the names; the process that it starts knows the rest."""
    return Part("exactness", name, lambda given, keep: {})


def test_a_part_that_fails_or_takes_too_long_does_not_keep_the_next_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {
        "crashes": "import os; print('it is broken', flush=True); os.abort()",
        "hangs": "import time; time.sleep(60)",
        "ends": "import sys, json, pathlib; path = pathlib.Path(sys.argv[1]); "
        "path.write_text(json.dumps({'state': 'ended', 'tiny': True, 'found': {'findings': []}}))",
    }

    def start(which: Part, given: Given, ends_at: float, log: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", programs[which.name], str(given.path(which))]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    monkeypatch.setattr(parts, "_start", start)
    monkeypatch.setattr(parts, "_LEAST_S", 0.1)
    given = Given(tmp_path, tiny=True)
    began = time.monotonic()
    parts.run([*map(part, programs)], {"exactness": 1.0}, given, minutes=6 / 60)
    assert time.monotonic() - began < 30
    states = {name: given.record("exactness", name)["state"] for name in programs}
    assert states == {"crashes": "failed", "hangs": "failed", "ends": "ended"}
    assert "it is broken" in given.record("exactness", "crashes")["log"]
    write(tmp_path / "gpu.md", [*map(part, programs)], given)
    said = (tmp_path / "gpu.md").read_text()
    assert "it is broken" in said
    assert "s were up" in said
    programs["ends"] = programs["crashes"]
    programs["crashes"] = "pass"
    parts.run([part("ends")], {"exactness": 1.0}, given, minutes=1)
    assert given.record("exactness", "ends")["state"] == "ended"  # what has ended is not run again


def test_a_page_without_records_claims_nothing(tmp_path: Path) -> None:
    write(tmp_path / "gpu.md", program.all_parts(tiny=False), Given(Path("/nowhere")))
    said = (tmp_path / "gpu.md").read_text()
    assert "Nothing of this was measured on a GPU" in said
    assert "##" not in said


def test_a_page_of_a_gpu_is_not_replaced_by_one_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    place = tmp_path / "gpu.md"
    place.write_bytes((ROOT / "docs" / "benchmarks" / "gpu.md").read_bytes())
    place.with_suffix(".json.xz").write_bytes((ROOT / "docs" / "benchmarks" / "gpu.json.xz").read_bytes())
    before = place.read_bytes()
    with pytest.raises(OtherDeviceError, match="tells of a GPU"):
        write(place, program.all_parts(tiny=True), Given(tmp_path))
    with pytest.raises(OtherDeviceError, match="tells of a GPU"):  # before anything is run
        program.main(["--tiny", "--out", str(tmp_path / "out"), "--page", str(place)])
    assert not (tmp_path / "out").exists()
    assert place.read_bytes() == before


SHAPE = training.shapes(tiny=False)[0]


def told(of: Training, per_s: float) -> dict[str, Any]:
    """What a comparison tells of our side, at so many tokens a second."""
    return {"cell": Cell(SHAPE, "bf16", of).plain(), "lingraft": {"step_s": SHAPE.tokens_per_step / per_s}}


def test_hours_follow_from_measured_rates() -> None:
    failed = {"cell": Cell(SHAPE, "bf16", Training.PRETRAINING).plain(), "error": "out of memory"}
    more = {"cell": Cell(SHAPE._replace(blocks=128), "bf16", Training.MINI).plain(), "step_s": 128 * 512 / 8e6}
    compared = {"cells": [told(Training.MINI, 4e6), told(Training.ADAPTATION, 2e6), failed]}
    (found,) = training.hours({"one": compared, "two": {"cells": [more]}}).values()
    assert found.pop(Training.MINI) == pytest.approx(125_000 * 2048 * 512 / 4e6 / 3600)
    assert found.pop(f"{Training.MINI}, 128 blocks at a time") == pytest.approx(125_000 * 2048 * 512 / 8e6 / 3600)
    assert found.pop(Training.ADAPTATION) == pytest.approx(125_000 * 2048 * 512 / 2e6 / 3600)
    ((name, hours),) = found.items()
    assert name.startswith("progressive")
    assert hours == pytest.approx(125_000 * 2048 * 512 * 3 / 8e6 / 3600)


def speed_part() -> Part:
    return next(part for part in training.parts(tiny=False) if part.stage == "speed")


def test_a_comparison_goes_on_with_the_cells_that_it_has_not_and_those_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Training] = []

    def compare(cells: list[Cell], *_: Any) -> Iterator[tuple[Cell, dict[str, Any]]]:
        for cell in cells:
            asked.append(cell.training)
            yield cell, {"error": "out of memory"} if cell.training is Training.FINETUNING else {}

    monkeypatch.setattr(training, "compared_together", compare)
    part, given = speed_part(), Given(tmp_path)
    earlier = [told(Training.MINI, 4e6), {"cell": Cell(SHAPE, "bf16", Training.STEP_1B).plain(), "error": "killed"}]
    path = given.path(part)
    path.parent.mkdir()
    path.write_text(json.dumps({"tiny": False, "found": {"settings": Settings().plain(), "cells": earlier}}))
    kept: list[Any] = []
    with pytest.raises(SystemExit, match="finetuning"):
        part.measure(given, kept.append)
    assert Training.MINI not in asked
    assert set(asked) == set(Training) - {Training.MINI}
    assert [each.get("error") for each in kept[-1]["cells"]].count(None) == len(Training) - 1
    assert kept[-1]["cells"][0] == json.loads(json.dumps(earlier[0]))


SIDES = """
import json, sys, time
name = json.loads(sys.argv[1])["settings"]
if name and name["loader_workers"]:
    sys.exit("no worker starts")
for line in sys.stdin:
    print(json.dumps({"seconds": 0.001, "cpu_s": 0.001, "peak_bytes": 1, "waiting_s": None}), flush=True)
if name and name["compiled"]:
    time.sleep(60)
"""


def test_settings_are_tried_at_once_whether_one_fails_or_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "side.py"
    program.write_text(SIDES)
    start = subprocess.Popen

    def started(command: list[str], **given: Any) -> Any:
        return start([sys.executable, str(program), command[-1]], **given)

    monkeypatch.setattr(side.subprocess, "Popen", started)
    monkeypatch.setattr(side, "_TO_END_S", 0.5)
    choices = [Settings(), Settings(loader_workers=4), Settings(compiled=True)]
    trials = tried_together(Cell(SHAPE, "bf16", Training.ADAPTATION), choices)
    assert [trial["step_s"] is None for trial in trials] == [False, True, False]
    assert "no worker starts" in trials[1]["error"]
    assert fastest(trials)["loader_workers"] == 0


def test_the_limit_is_products_and_the_optimizers_bytes() -> None:
    """Base shape, 4 layers, 32 x 512 tokens, V 50,000, counted by hand."""
    layer = 2 * (12 * 768**2 + 2 * 512 * 768)  # multiply-adds of a token's four matrices, scores and mixture
    masked = 2 * (768**2 + 768 * 50_000)
    tokens = 32 * 512
    flops = tokens * (2 * 4 * layer + 0.15 * (2 * masked + 2 * 768 * 50_000))
    assert flops == pytest.approx(2.63e12, rel=2e-3)
    step_s = flops / 790e12 + 32 * 50_000 * 769 / 4.3e12
    found = roofline.adaptation_tokens_per_s(4, 32, roofline.H200)
    assert found == pytest.approx(tokens / step_s)
    cell = Cell(training.shape_of(512), "bf16", Training.MINI)
    assert roofline.cell_least_s(cell, roofline.H200) == pytest.approx(step_s)


def test_the_limit_counts_what_a_training_trains() -> None:
    cells = {each: Cell(training.shape_of(512), "bf16", each) for each in Training}
    nothing_but_bytes = roofline.Rates(float("inf"), float(roofline.ADAMW_BYTES))
    trained = {each: roofline.cell_least_s(cell, nothing_but_bytes) for each, cell in cells.items()}
    layer = 12 * 768**2 + 13 * 768
    head = 768**2 + 3 * 768
    assert trained[Training.ADAPTATION] == trained[Training.MINI] == 50_000 * 769
    assert trained[Training.STEP_1B] == 2 * layer
    assert trained[Training.FINETUNING] == 12 * layer + 514 * 768 + 2 * 768
    assert trained[Training.PRETRAINING] - trained[Training.FINETUNING] == 50_000 * 769 + head


def test_the_page_of_the_gpu_path_has_the_limits_as_they_are_computed() -> None:
    assert roofline.adaptation_table() in (ROOT / "docs" / "decisions" / "0023-gpu-path.md").read_text()


@pytest.mark.integration
@pytest.mark.parametrize("training_of", [Training.ADAPTATION, Training.STEP_1B, Training.FINETUNING])
def test_the_modern_peer_has_our_shape_and_freezes_what_the_stage_does_not_train(training_of: Training) -> None:
    from benchmarks.speed.peer import model

    cell = Cell(Shape("tiny", 32, 2, 300, 16, 2, "modern"), "fp32", training_of)
    net = model(cell, "sdpa")
    assert net.config.intermediate_size == cell.shape.encoder.feedforward_width
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    tables = {"model.embeddings.tok_embeddings.weight"}
    if training_of is Training.ADAPTATION:
        assert tables <= trained <= tables | {"decoder.weight", "decoder.bias"}
    else:
        assert trained
        assert not tables & trained
    if training_of is Training.STEP_1B:
        assert {name.split(".")[2] for name in trained} == {"2", "3"}


def test_the_medium_recipe_is_priced_and_planned() -> None:
    recipe = Recipe.load(ROOT / "recipes" / "medium.toml")
    assert len(plan_comparison(recipe).arms) == len(System)
    assert bills(recipe)


def made_up(data: Path, documents: int) -> None:
    """Text of two languages, whose words differ in frequency alone."""
    (data / "corpus").mkdir(parents=True)
    known = words(2000)
    for language in ("en", "de"):
        draw = random.Random(language)
        pages = ("\n".join(" ".join(draw.choices(known, k=12)) for _ in range(4)) for _ in range(documents))
        (data / "corpus" / f"{language}.txt").write_text("\n\n".join(pages) + "\n", encoding="utf-8")


def test_text_that_is_too_little_is_not_packed(tmp_path: Path) -> None:
    made_up(tmp_path / "data", documents=1)
    with pytest.raises(TextError, match=r"leave .* empty"):
        pack.write_prepared_text(tmp_path, tmp_path / "data", 20, tiny=True)
    assert not (tmp_path / "text.tar.xz").exists()


@pytest.mark.integration
def test_a_pack_runs_whole_and_is_not_run_again(tmp_path: Path) -> None:
    made_up(tmp_path / "data", documents=300)
    folder = tmp_path / "pack"
    folder.mkdir()
    pack.write_sources(folder)
    pack.write_prepared_text(folder, tmp_path / "data", 20, tiny=True)
    (folder / "site").mkdir()
    (folder / "site" / ".complete").touch()
    (folder / "site" / "sitecustomize.py").write_text(HIDE)
    run: Callable[..., Any] = partial(subprocess.run, check=True, capture_output=True, text=True, timeout=600)
    command = ["sh", str(folder / "run.sh"), "--tiny", "--minutes", "20"]
    environment = os.environ | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTHONPATH", None)
    run(command, env=environment)
    records = {path: json.loads(path.read_text()) for path in (folder / "out").glob("*/*.json")}
    records = {path: record for path, record in records.items() if "state" in record}
    assert {record["state"] for record in records.values()} == {"ended"}, records
    assert len(records) == len(program.all_parts(tiny=True))
    said = (folder / "out" / "gpu.md").read_text()
    for title in ("Machine", "Exactness", "Speed", "Where a step", "A language", "Serving", "The comparison", "Parts"):
        assert f"\n## {title}" in said
    assert "Nothing of this was measured on a GPU" in said
    assert "| missing packages | scipy, typer, zstandard, datasets, kfp, kserve, matplotlib, mlflow, optuna" in said
    assert "0 of 29 differences from the CPU exceed their bounds" in said
    run(command, env=environment)
    assert {path: json.loads(path.read_text()) for path in records} == records
