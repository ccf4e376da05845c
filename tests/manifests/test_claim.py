"""The claim: the Job that mounts it first, and the CronJob that clears it."""

import os
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from lingraft.artifacts.cache import cached
from lingraft.artifacts.manifest import Kind
from lingraft.config.cluster import Cluster
from pipelines.cluster import CACHES, USER_ID
from tests.manifests.conftest import MANIFESTS, built, pod_of

Document = dict[str, Any]
SCRIPT = MANIFESTS / "base" / "prepare_claim.py"


def _prepare(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["Job/prepare-claim", "CronJob/clean-claim"])
def test_a_pod_that_writes_the_claim_has_the_user_of_steps_and_its_group(pods: dict[str, Document], name: str) -> None:
    context = pods[name]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (USER_ID,) * 3
    assert {"claimName": Cluster().storage_claim} in [v.get("persistentVolumeClaim") for v in pods[name]["volumes"]]


def test_the_job_runs_the_script_on_the_claim(pods: dict[str, Document], documents: list[Document]) -> None:
    (container,) = pods["Job/prepare-claim"]["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    python, script, folder = container["command"]
    volumes = {volume["name"]: volume for volume in pods["Job/prepare-claim"]["volumes"]}
    assert (python, mounts[folder]) == ("python", "data")
    source = volumes[mounts[str(PurePosixPath(script).parent)]]["configMap"]["name"]
    (scripts,) = (d for d in documents if d["kind"] == "ConfigMap" and d["metadata"]["name"] == source)
    assert scripts["data"][PurePosixPath(script).name] == SCRIPT.read_text(encoding="utf-8")


def test_every_folder_that_steps_write_is_made(tmp_path: Path) -> None:
    done = _prepare(tmp_path)
    assert done.returncode == 0, done.stderr
    results = PurePosixPath(Cluster().results_place).relative_to(Cluster().storage_path)
    wanted = [str(results), *CACHES.values()]
    assert all((tmp_path / name).is_dir() for name in wanted)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert _prepare(tmp_path).returncode == 0


def test_a_claim_that_cannot_be_written_fails_the_job_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("not a folder")
    done = _prepare(tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path} cannot be written" in done.stderr
    assert "fsGroup" in done.stderr


def test_results_that_nobody_asked_for_in_a_month_are_cleared(tmp_path: Path) -> None:
    [cron_job] = [document for document in built("prod") if document["metadata"]["name"] == "clean-claim"]
    [container] = pod_of(cron_job)["containers"]
    _prepare(tmp_path)
    names = (f"results/text-{'0' * 32}", "results/primary-1")
    *old, young = (tmp_path / name for name in names)
    for folder in (*old, young):
        folder.mkdir()
        (folder / "result.log").write_text("{}")
    for folder in old:
        os.utime(folder, (time.time() - 31 * 86_400,) * 2)
    os.utime(young, (time.time() - 31 * 86_400,) * 2)
    with cached(young / "result", Kind.PRIMARY, {}):  # to use a result is enough
        pass
    done = subprocess.run(
        [part.replace("/data", str(tmp_path)) for part in container["command"]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {*done.stdout.splitlines()} == {*map(str, old)}
    assert [folder.exists() for folder in (*old, young)] == [False, True]
