"""Launchers in threads of this process, of a step whose pods a test makes itself."""

import threading
from pathlib import Path
from typing import Any

from lingraft.config.cluster import Cluster, Profile
from lingraft.config.recipe import Recipe
from lingraft.steps.launch.calls import AttemptResult, StepAnswer
from lingraft.steps.launch.handover import Handover
from lingraft.steps.launch.on_cluster import ClusterLauncher
from tests.steps.launch import small_steps
from tests.steps.launch.api_server import ApiServer
from tests.workshop import TINY

RESULT = {"steps": 7}
WAITING = {
    "name": "step",
    "image": "x",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image x"}},
    "lastState": {},
}
"""Status of a container that waits for its image."""


class Launcher:
    """One that does a step, in a thread; others that do the same step are of the same folder."""

    def __init__(self, folder: Path, profile: Profile, run: Path | None = None, queue: str | None = None) -> None:
        cluster = Cluster(storage_path=str(folder), stages={"pretraining": profile}, queue=queue)
        self.handover = Handover(folder, small_steps.Waits(recipe=Recipe.load(TINY)), run)
        self._launcher = ClusterLauncher(cluster, profile, self.handover)
        self.ended: list[AttemptResult] = []
        self._thread = threading.Thread(target=lambda: self.ended.append(self._launcher.attempt()), daemon=True)
        self._thread.start()

    def waits(self) -> AttemptResult:
        """What it ends with."""
        self._thread.join()
        [ended] = self.ended
        return ended


def succeed(server: ApiServer, launcher: Launcher, plural: str, name: str) -> None:
    """End a workload well, as one whose step has left its answer."""
    job = server.objects[plural, name]
    attempt = launcher.handover.attempt(job["metadata"]["annotations"]["lingraft.io/attempt"])
    (attempt.folder / "answer.json").write_text(StepAnswer(result=RESULT).model_dump_json(), encoding="utf-8")
    server.end(plural, name, "Complete")


def put_pod(server: ApiServer, workload: str, status: dict[str, Any], **metadata: Any) -> str:
    """Add the pod of a Job, on a node."""
    name = f"{workload}-x7k2p"
    about = {"name": name, "labels": {"batch.kubernetes.io/job-name": workload}, **metadata}
    spec = {"nodeName": "node-7", "containers": [{"name": "step", "image": "x"}]}
    server.put("pods", {"metadata": about, "spec": spec, "status": status})
    return name


def names(server: ApiServer, plural: str) -> list[str]:
    """Names of all objects of a kind."""
    return [name for kind, name in server.objects if kind == plural]
