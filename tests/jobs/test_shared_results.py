"""Results that are shared: taken where all that decides them is the same, made anew where anything differs."""

from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts import cache
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import ArtifactError
from lingraft.jobs.job import Job
from lingraft.jobs.training import FinetuningJob, PretrainingJob
from lingraft.signals import Interruption
from lingraft.stages import pretrain as pretrain_stage
from lingraft.training.schedule import TrainingMetrics
from tests.workshop import Workshop, changed


@pytest.fixture(params=["a URI"])
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Where results are shared."""
    place = tmp_path / "shared"
    place.mkdir()
    monkeypatch.setenv(cache.RESULTS_VARIABLE, str(place) if request.param == "a folder" else place.as_uri())
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))
    return place


@pytest.fixture
def short(workshop: Workshop) -> Recipe:
    return changed(workshop.recipe, "pretraining", steps=6, warmup_steps=1, log_every_steps=2)


def pretraining(workshop: Workshop, recipe: Recipe, out: Path) -> Job:
    return PretrainingJob(recipe=recipe, blocks=workshop.blocks["en"], tokenizer=workshop.tokenizers["en"], out=out)


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
    made = job.get_or_make(first.append)
    again = pretraining(workshop, short, tmp_path / "second")
    assert again.get_or_make(second.append).manifest == made.manifest
    assert (second, len(trained)) == (first, 1)
    assert len(first) == 3
    assert [*(tmp_path / "cache").glob("results/*")] == []


def test_a_result_is_shared_by_all_that_decides_it_and_nothing_else(
    workshop: Workshop, short: Recipe, tmp_path: Path
) -> None:
    def key(recipe: Recipe, language: str = "en") -> dict[str, Any]:
        job = pretraining(workshop, recipe, tmp_path)
        return job.model_copy(update={"blocks": workshop.blocks[language]}).provenance

    same, elsewhere = key(short), changed(short, "cluster", storage_claim="other")
    assert key(elsewhere.model_copy(update={"targets": (*short.targets, "el")})) == same
    assert key(short, "de") != same
    assert key(changed(short, "pretraining", seed=7)) != same
    assert key(short.model_copy(update={"precision": "bf16"})) != same


@pytest.mark.usefixtures("shared")
def test_another_version_makes_its_own_results(
    workshop: Workshop, short: Recipe, trained: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = pretraining(workshop, short, tmp_path / "out")
    job.get_or_make()
    monkeypatch.setattr(cache, "__version__", "99")
    pretraining(workshop, short, tmp_path / "again").get_or_make()
    assert len(trained) == 2


@pytest.mark.parametrize("shared", ["a folder", "a URI"], indirect=True)
def test_one_that_was_stopped_goes_on_in_another_place(
    workshop: Workshop, short: Recipe, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(point: TrainingMetrics) -> None:
        if point.step == 4:
            raise Interruption(15, "asked to stop")

    expected = pretraining(workshop, short, tmp_path / "whole").make().fingerprint
    eager = changed(short, "pretraining", keep_every_s=0.0001)
    with pytest.raises(Interruption):
        pretraining(workshop, eager, tmp_path / "first").get_or_make(stop)
    assert not (tmp_path / "first").exists()
    assert pretraining(workshop, eager, tmp_path / "second").get_or_make().fingerprint == expected
    assert "going on after step" in capsys.readouterr().err
    assert not [path for path in shared.glob("*/result.training/**/*") if path.is_file()]


def test_a_result_that_is_damaged_is_set_aside_and_made_anew(
    workshop: Workshop, short: Recipe, shared: Path, trained: list[Path], tmp_path: Path
) -> None:
    made = pretraining(workshop, short, tmp_path / "first").get_or_make()
    [body] = shared.glob("primary-*/result/body.safetensors")
    body.write_bytes(body.read_bytes()[:-1])
    again = pretraining(workshop, short, tmp_path / "second").get_or_make()
    assert again.fingerprint == made.fingerprint
    assert len(trained) == 2


def test_a_place_that_cannot_be_written_is_named(
    workshop: Workshop, short: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(cache.RESULTS_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ArtifactError, match=r"cannot write .*file"):
        pretraining(workshop, short, tmp_path / "out").get_or_make()


def test_finetuning_depends_on_what_its_files_hold(workshop: Workshop, tmp_path: Path) -> None:
    examples = tmp_path / "train.tsv"
    settings = {"name": "pairs", "kind": "pairs", "train": {"kind": "file", "path": str(examples)}}
    settings |= {"dev": settings["train"], "test": settings["train"]}
    raw = workshop.recipe.model_dump(mode="json") | {"tasks": [settings]}

    def key() -> dict[str, Any]:
        job = FinetuningJob(
            recipe=Recipe.parse(raw),
            task="pairs",
            seed=1,
            primary=workshop.primary,
            text=workshop.texts["en"],
            out=tmp_path / "out",
        )
        return job.provenance

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
    monkeypatch.delenv(cache.RESULTS_VARIABLE, raising=False)
    job = pretraining(workshop, short, tmp_path / "out")
    assert Artifact.load(job.get_or_make().folder, Kind.PRIMARY)
