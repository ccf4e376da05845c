"""Results that are shared: taken where all that decides them is the same, made anew where anything differs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts import sync
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import ArtifactError
from lingraft.jobs import job as jobs
from lingraft.jobs import shared_results
from lingraft.jobs.job import Job
from lingraft.jobs.shared_results import cache_key, get_or_run, has_result
from lingraft.signals import Interruption
from lingraft.stages import pretrain as pretrain_stage
from lingraft.training.schedule import TrainingMetrics, ignore_metrics
from tests.workshop import Workshop, changed


@pytest.fixture(params=["a folder", "a URI"])
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Where results are shared."""
    place = tmp_path / "shared"
    place.mkdir()
    monkeypatch.setenv(sync.RESULTS_VARIABLE, str(place) if request.param == "a folder" else place.as_uri())
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))
    return place


@pytest.fixture
def short(workshop: Workshop) -> Recipe:
    return changed(workshop.recipe, "pretraining", steps=6, warmup_steps=1, log_every_steps=2)


def pretraining(workshop: Workshop, recipe: Recipe, out: Path) -> Job:
    return jobs.pretraining(recipe, workshop.blocks["en"], workshop.tokenizers["en"], out)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where trainings have begun."""
    begun: list[Path] = []
    real = pretrain_stage.pretrain

    def pretrain(recipe: Recipe, blocks: Path, tokenizer: Path, out: Path, watch: Any) -> Artifact:
        begun.append(out)
        return real(recipe, blocks, tokenizer, out, watch)

    monkeypatch.setattr(pretrain_stage, "pretrain", pretrain)
    return begun


def test_the_same_is_not_made_twice_and_tells_its_curve_again(
    workshop: Workshop, short: Recipe, shared: Path, trained: list[Path], tmp_path: Path
) -> None:
    first: list[TrainingMetrics] = []
    second: list[TrainingMetrics] = []
    job = pretraining(workshop, short, tmp_path / "first")
    assert not has_result(job)
    made = get_or_run(job, first.append)
    again = pretraining(workshop, short, tmp_path / "second")
    assert has_result(again)
    assert get_or_run(again, second.append).manifest == made.manifest
    assert (second, len(trained)) == (first, 1)
    assert len(first) == 3
    assert [*(tmp_path / "cache").glob("results/*")] == []


@pytest.mark.parametrize(
    "other",
    [
        lambda recipe, _: changed(recipe, "pretraining", seed=7),
        lambda recipe, _: recipe.model_copy(update={"precision": "bf16"}),
        lambda recipe, patch: patch.setenv(shared_results.IMAGE_VARIABLE, "train@sha256:other") or recipe,
    ],
    ids=["another seed", "another number format", "another image"],
)
def test_what_is_decided_otherwise_is_made_anew(
    workshop: Workshop,
    short: Recipe,
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: Callable[[Recipe, pytest.MonkeyPatch], Recipe],
) -> None:
    get_or_run(pretraining(workshop, short, tmp_path / "first"), ignore_metrics)
    assert not has_result(pretraining(workshop, other(short, monkeypatch), tmp_path / "second"))


def test_what_does_not_decide_a_result_does_not_matter(workshop: Workshop, short: Recipe, tmp_path: Path) -> None:
    more = short.model_copy(update={"targets": (*short.targets, "el")})
    elsewhere = changed(more, "cluster", storage_claim="other")
    assert cache_key(pretraining(workshop, elsewhere, tmp_path)) == cache_key(pretraining(workshop, short, tmp_path))


def test_other_text_is_another_result(workshop: Workshop, short: Recipe, tmp_path: Path) -> None:
    of_de = jobs.pretraining(short, workshop.blocks["de"], workshop.tokenizers["en"], tmp_path)
    assert cache_key(of_de) != cache_key(pretraining(workshop, short, tmp_path))


def test_one_that_was_stopped_goes_on_in_another_place(
    workshop: Workshop, short: Recipe, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(point: TrainingMetrics) -> None:
        if point.step == 4:
            raise Interruption(15, "asked to stop")

    whole = workshop.recipe.model_copy(update={"pretraining": short.pretraining})
    expected = pretrain_stage.pretrain(
        whole, workshop.blocks["en"], workshop.tokenizers["en"], tmp_path / "whole", ignore_metrics
    ).fingerprint
    eager = changed(short, "pretraining", keep_every_s=0.0001)
    with pytest.raises(Interruption):
        get_or_run(pretraining(workshop, eager, tmp_path / "first"), stop)
    assert not (tmp_path / "first").exists()
    assert get_or_run(pretraining(workshop, eager, tmp_path / "second"), ignore_metrics).fingerprint == expected
    assert "going on after step" in capsys.readouterr().err
    assert [*shared.glob("*/result.training/*")] == []


def test_a_result_that_is_damaged_is_set_aside_and_made_anew(
    workshop: Workshop, short: Recipe, shared: Path, trained: list[Path], tmp_path: Path
) -> None:
    made = get_or_run(pretraining(workshop, short, tmp_path / "first"), ignore_metrics)
    [body] = shared.glob("primary-*/result/body.safetensors")
    body.write_bytes(body.read_bytes()[:-1])
    again = get_or_run(pretraining(workshop, short, tmp_path / "second"), ignore_metrics)
    assert again.fingerprint == made.fingerprint
    assert len(trained) == 2


def test_a_place_that_cannot_be_written_is_named(
    workshop: Workshop, short: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(sync.RESULTS_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ArtifactError, match=r"cannot write .*file"):
        get_or_run(pretraining(workshop, short, tmp_path / "out"), ignore_metrics)


def test_finetuning_depends_on_what_its_files_hold(workshop: Workshop, tmp_path: Path) -> None:
    examples = tmp_path / "train.tsv"
    settings = {"name": "pairs", "kind": "pairs", "train": {"kind": "file", "path": str(examples)}}
    settings |= {"dev": settings["train"], "test": settings["train"]}
    raw = workshop.recipe.model_dump(mode="json") | {"tasks": [settings]}

    def key() -> dict[str, Any]:
        return cache_key(
            jobs.finetuning(Recipe.parse(raw), "pairs", 1, workshop.primary, workshop.texts["en"], tmp_path / "out")
        )

    examples.write_text("a\tb\tyes\n", encoding="utf-8")
    before = key()
    assert key() == before
    settings["label_names"] = {"yes": "It follows"}
    assert key() == before
    examples.write_text("a\tb\tno\n", encoding="utf-8")
    assert key() != before


def test_without_a_place_nothing_is_shared(
    workshop: Workshop, short: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(sync.RESULTS_VARIABLE, raising=False)
    job = pretraining(workshop, short, tmp_path / "out")
    assert not has_result(job)
    assert Artifact.load(get_or_run(job, ignore_metrics).folder, Kind.PRIMARY)
