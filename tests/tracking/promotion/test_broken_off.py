"""A source whose registration breaks off between two aliases: what pipelines fetch is of one primary all the same."""

from pathlib import Path

import pytest

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.artifacts.names import primary_name, task_name
from lingraft.stages import results
from lingraft.stages.results import SourceResult
from lingraft.steps.source import fetch_source, register_source
from lingraft.tracking.client import UnreachableError
from lingraft.tracking.promotion import roll_back
from tests.faults.mlflow_proxy import Fault, Proxy, proxy_to
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]
ALIASES = 6
"""That registering a source moves: one of each of two seeds, and `previous` and `champion` of the primary and task."""
BROKEN_OFF_AT = (3, 4)
"""After the primary's `previous`, and after its `champion`, which makes the difference."""

Given = tuple[str, Path, Path, list[Path], Path]


class Source:
    """A primary of made-up numbers, with two seeds of a task, and how it was judged."""

    def __init__(self, project: Project, value: float) -> None:
        self.project = project
        self.primary = project.make(Kind.PRIMARY, value, language="en")
        self.tasks = [self._task(seed, value) for seed in (1, 2)]
        self.evaluation = project.folder / f"judged-{value}"
        mark = self.primary.fingerprint
        results.save(_judged(mark), self.evaluation, {"language": "en", "aligned_with": mark})

    def _task(self, seed: int, value: float) -> Artifact:
        facts = {"task": "topic", "settings": {"kind": "documents"}, "metric": "accuracy", "labels": []}
        details = facts | {"seed": seed, "dev_score": seed / 10}
        return self.project.make(
            Kind.TASK, 10 * value + seed, aligned_with=self.primary.fingerprint, language="en", details=details
        )

    def given(self, run: Path) -> Given:
        run.write_text(tracking.open_run(self.project.recipe, "source"))
        tasks = [task.folder for task in self.tasks]
        return self.project.recipe.to_json(), run, self.primary.folder, tasks, self.evaluation


def _judged(primary: str) -> SourceResult:
    return SourceResult(
        language="en",
        primary=primary,
        layers=3,
        vocabulary=4,
        masked_by_depth={3: 0.2},
        tasks=(),
        pretraining=Cost(),
        finetuning={},
        pretraining_history=[],
        finetuning_history={},
        precision="fp32",
    )


def fetched(project: Project, folder: Path) -> str:
    """The primary that a pipeline gets, after a look at whether all it gets belongs together."""
    run = folder.with_name(f"{folder.name}-run")
    run.write_text(tracking.open_run(project.recipe, "language"))
    places = [folder / name for name in ("primary", "tasks", "evaluation", "mini", "vectors")]
    fetch_source(project.recipe.to_json(), run, *places)
    mark = Artifact.load(places[0], Kind.PRIMARY).fingerprint
    tasks = {seed: Artifact.load(places[1] / "topic" / f"seed-{seed}", Kind.TASK) for seed in (1, 2)}
    assert {task.manifest.aligned_with for task in tasks.values()} == {mark}
    assert {seed: task.manifest.details["seed"] for seed, task in tasks.items()} == {1: 1, 2: 2}
    assert results.load_source(places[2]).primary == mark
    return mark


def dead_at_alias(proxy: Proxy, number: int) -> None:
    seen: list[str] = []

    def decide(request: str) -> Fault:
        seen.extend([request] if request.endswith("registered-models/alias") and "POST" in request else [])
        return Fault.CUT if len(seen) > number else Fault.NONE

    proxy.fault = decide


def lost_at_alias(given: Given, proxy: Proxy, number: int) -> bool:
    """Register until this alias, from which on the server hears nothing; whether there was one of this number."""
    dead_at_alias(proxy, number)
    try:
        register_source(*given)
    except UnreachableError:
        return True
    return False


def test_a_source_that_breaks_off_between_its_aliases_is_never_mixed_with_the_one_before(
    remote: Project, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At two of the aliases, the server is gone for the process that registers."""
    old, new = Source(remote, 1.0), Source(remote, 2.0)
    register_source(*old.given(tmp_path / "run-old"))
    assert fetched(remote, tmp_path / "before") == old.primary.fingerprint
    came = []
    with proxy_to(server) as proxy:
        for number in (*BROKEN_OFF_AT, ALIASES):
            given = new.given(tmp_path / f"run-{number}")
            proxy.injected.clear()
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
            with monkeypatch.context() as patch:
                patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
                was_lost = lost_at_alias(given, proxy, number)
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
            came.append((was_lost, fetched(remote, tmp_path / f"fetched-{number}")))
    before, after = (True, old.primary.fingerprint), (True, new.primary.fingerprint)
    assert came == [before, after, (False, after[1])]
    names = primary_name(remote.recipe), task_name(remote.recipe, "topic")
    marks = [tracking.tags_of(name)["fingerprint"] for name in names]
    assert marks == [new.primary.fingerprint, new.tasks[1].fingerprint]
    assert roll_back(tracking.connect(), names[0], "a test").version == 1
    assert fetched(remote, tmp_path / "rolled-back") == old.primary.fingerprint
