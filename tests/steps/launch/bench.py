"""A step that is launched on the tests' cluster, and what can be done to it meanwhile."""

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingraft.artifacts import cache
from lingraft.config.cluster import Cluster, Profile
from lingraft.config.recipe import Recipe
from lingraft.jobs.training import PretrainingJob
from lingraft.signals import Interruption, interruptible
from lingraft.steps import data
from lingraft.steps.launch import launcher
from tests.fixtures import forked
from tests.steps.launch.api_server import ApiServer
from tests.steps.launch.node import Node
from tests.tracking_stores import sqlite_store
from tests.workshop import Workshop, changed

LAUNCHER = Path(__file__).parents[3] / "manifests" / "base" / "launcher.yaml"
SHORT = {"steps": 6, "warmup_steps": 1}
LONG = {"steps": 120, "keep_every_s": 0.02}

KEPT = 5
"""Steps that have to be kept before something is done to a training."""


@dataclass
class Bench:
    """A cluster, and a step that is to be launched on it."""

    server: ApiServer
    node: Node
    folder: Path
    recipe: Recipe
    shop: Workshop
    plural: str
    """Kubernetes' word for what it is launched as."""

    def run(self, **options: Any) -> Any:
        """Launch a pretraining."""
        return launcher.run(self.job, self.folder / "run", **options)

    @property
    def job(self) -> PretrainingJob:
        """The pretraining."""
        return PretrainingJob(
            recipe=self.recipe,
            blocks=self.shop.blocks["en"],
            tokenizer=self.shop.tokenizers["en"],
            out=self.folder / "out",
        )

    def lasts(self, **more: Any) -> None:
        """Have the pretraining last so long that something can become of it meanwhile."""
        self.recipe = changed(self.recipe, "pretraining", **(LONG | more))

    def when(self, is_time: Callable[[], bool], act: Callable[[str], None]) -> None:
        """Do something to the newest pod as soon as it is time, while the launcher goes on."""

        def wait() -> None:
            while not (self.node.processes and is_time()):
                time.sleep(0.01)
            act([*self.node.processes][-1])

        threading.Thread(target=wait, daemon=True).start()

    def steps_kept(self) -> int:
        """By the training so far."""
        places = (self.folder / "claim").glob("results/primary-*/result.training/step-*")
        return max((int(place.name.removeprefix("step-")) for place in places), default=0)

    def trains(self) -> bool:
        """Whether there is something to lose."""
        return self.steps_kept() > KEPT

    def jobs(self) -> list[str]:
        """Names of those that were created, by their numbers."""
        return sorted(name for plural, name in self.server.objects if plural == self.plural)


@contextlib.contextmanager
def a_bench(workshop: Workshop, folder: Path, monkeypatch: pytest.MonkeyPatch, profile: Profile) -> Iterator[Bench]:
    """One whose pretraining is launched by a profile."""
    server, claim = ApiServer(), folder / "claim"
    cluster = Cluster(storage_path=str(claim), stages={"pretraining": profile})
    recipe = changed(workshop.recipe, "pretraining", **SHORT).model_copy(update={"cluster": cluster, "threads": 1})
    monkeypatch.setenv(launcher.STAGE, "pretraining")
    monkeypatch.setenv(cache.RESULTS_VARIABLE, str(claim / "results"))
    with server.serving(folder) as kubeconfig, sqlite_store(folder) as uri:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        node = Node(server, folder, {"MLFLOW_TRACKING_URI": uri})
        node.join()
        data.open_run(recipe.to_json(), "source", folder / "run")
        yield Bench(server, node, folder, recipe, workshop, f"{profile.launched}s".lower())
        node.close()
    assert server.used <= _granted()


def _granted() -> set[tuple[str, str, str]]:
    """Group, resource and verb of every right that the manifests give the launcher."""
    [role] = (one for one in yaml.safe_load_all(LAUNCHER.read_text(encoding="utf-8")) if one["kind"] == "Role")
    parts = ((rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"])
    return {right for each in parts for right in itertools.product(*each)}


def launched(bench: Bench) -> forked.Child:
    """A launcher in a process of its own, which does the same as `bench.run()`."""
    return forked.start(launch, bench.job, bench.folder / "run", log=bench.folder / "launcher.log")


def launch(job: PretrainingJob, run: Path) -> None:
    """Launch a pretraining as a step of a pipeline does."""
    try:
        with interruptible():
            launcher.run(job, run)
    except Interruption as interruption:
        sys.exit(interruption.exit_code)
