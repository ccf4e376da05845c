"""A source whose registration is killed between two aliases: what pipelines fetch is of one primary all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from lingraft import results, tracking
from lingraft.artifact import Artifact, Cost, Kind
from lingraft.registered import primary_name, task_name
from lingraft.registry.promotion import rollback
from lingraft.results import SourceResult
from lingraft.steps.source import fetch_source, register_source
from lingraft.tracking import decisions
from lingraft.tracking.decisions import Outcome
from tests.faults.mlflow_proxy import Fault, Proxy, proxy_to
from tests.registry.project import Project

pytestmark = pytest.mark.integration
ALIASES = 4
"""That registering a source moves: one of each of two seeds, the primary's, and the task's."""
REGISTER = """
import sys
from pathlib import Path
from lingraft.steps.source import register_source
recipe, run, primary, evaluation, *tasks = map(Path, sys.argv[1:])
register_source(recipe.read_text(), run, primary, tasks, evaluation)
"""


class Source:
    """A primary of made-up numbers, with two seeds of a task, and how it was judged."""

    def __init__(self, project: Project, value: float) -> None:
        self.project = project
        self.primary = project.make(Kind.PRIMARY, value, language="en")
        self.tasks = [self._task(seed, value) for seed in (1, 2)]
        self.evaluation = project.folder / f"judged-{value}"
        mark = self.primary.fingerprint
        results.save(_judged(mark), Kind.EVALUATION, self.evaluation, language="en", aligned_with=mark)

    def _task(self, seed: int, value: float) -> Artifact:
        facts = {"task": "topic", "settings": {"kind": "documents"}, "metric": "accuracy", "labels": []}
        details = facts | {"seed": seed, "dev_score": seed / 10}
        return self.project.make(
            Kind.TASK, 10 * value + seed, aligned_with=self.primary.fingerprint, language="en", details=details
        )

    def arguments(self, run: Path) -> list[Path]:
        recipe = self.project.folder / "recipe"
        recipe.write_text(self.project.recipe.to_json())
        run.write_text(tracking.open_run(self.project.recipe, "source"))
        return [recipe, run, self.primary.folder, self.evaluation, *(task.folder for task in self.tasks)]

    def register(self, run: Path) -> None:
        recipe, run, primary, evaluation, *tasks = self.arguments(run)
        register_source(recipe.read_text(), run, primary, tasks, evaluation)


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
    places = [folder / name for name in ("primary", "tasks", "evaluation", "mini")]
    fetch_source(project.recipe.to_json(), run, *places)
    mark = Artifact.load(places[0], Kind.PRIMARY).fingerprint
    tasks = {seed: Artifact.load(places[1] / "topic" / f"seed-{seed}", Kind.TASK) for seed in (1, 2)}
    assert {task.manifest.aligned_with for task in tasks.values()} == {mark}
    assert {seed: task.manifest.details["seed"] for seed, task in tasks.items()} == {1: 1, 2: 2}
    assert results.load_source(places[2]).primary == mark
    return mark


def dead_at_alias(proxy: Proxy, number: int) -> None:
    """From the alias of this number on, the server hears nothing any more."""
    seen: list[str] = []

    def decide(request: str) -> Fault:
        seen.extend([request] if request.endswith("registered-models/alias") and "POST" in request else [])
        return Fault.CUT if len(seen) > number else Fault.NONE

    proxy.fault = decide


def killed_at_alias(source: Source, proxy: Proxy, number: int, run: Path) -> bool:
    """Whether there was an alias of this number to be killed at."""
    proxy.injected.clear()
    arguments = source.arguments(run)
    dead_at_alias(proxy, number)
    process = subprocess.Popen([sys.executable, "-c", REGISTER, *arguments])
    while process.poll() is None and not proxy.injected:
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    ended = process.wait()
    proxy.fault = lambda request: Fault.NONE
    assert ended == (-9 if proxy.injected else 0)
    return bool(proxy.injected)


def test_a_source_that_is_killed_between_its_aliases_is_never_mixed_with_the_one_before(
    remote: Project, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Source(remote, 1.0), Source(remote, 2.0)
    old.register(tmp_path / "run-old")
    assert fetched(remote, tmp_path / "before") == old.primary.fingerprint
    came = []
    with proxy_to(server) as proxy:
        for number in range(ALIASES + 1):
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
            was_killed = killed_at_alias(new, proxy, number, tmp_path / f"run-{number}")
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
            came.append((was_killed, fetched(remote, tmp_path / f"fetched-{number}")))
    before, after = (True, old.primary.fingerprint), (True, new.primary.fingerprint)
    assert came == [before, before, before, after, (False, after[1])]
    names = primary_name(remote.recipe), task_name(remote.recipe, "topic")
    with tracking.asking() as ask:
        outcomes = {each.outcome for each in decisions.history(ask, remote.recipe.name)}
        assert [tracking.tags_of(name)["fingerprint"] for name in names] == [
            new.primary.fingerprint,
            new.tasks[1].fingerprint,
        ]
        assert outcomes == {Outcome.DONE}
        assert rollback(ask, names[0], "a test").after == 1
    assert fetched(remote, tmp_path / "rolled-back") == old.primary.fingerprint
