"""Several processes at once against a real server: one version of one content, and one champion of many challengers."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.artifact import Kind
from lingraft.tracking import decisions
from lingraft.tracking.decisions import Outcome, Record
from lingraft.tracking.versions import bring, version_of
from tests.faults.mlflow_proxy import Fault, proxy_to
from tests.registry.project import Project

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True, scope="session"),
]
PROCESSES = 4
REGISTER = """
import sys
import time
from pathlib import Path
from lingraft import tracking
from lingraft.artifact import Kind
run, folder, name, flag = sys.argv[1:]
with tracking.stage(run, f"register-{flag}") as stage:
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    print(tracking.register(name, Path(folder, "made"), Kind.EMBEDDINGS, stage, {"score": 0.5}))
"""
PROMOTE = """
import sys
import time
from pathlib import Path
from lingraft import tracking
from lingraft.errors import OvertakenError
from lingraft.registry.promotion import promote
name, number, go = sys.argv[1:]
with tracking.asking() as ask:
    print("ready", flush=True)
    while not Path(go).exists():
        time.sleep(0.01)
    try:
        print("moved" if promote(ask, name, int(number), f"process {number}").moved else "refused")
    except OvertakenError as error:
        print("overtaken", error)
"""


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


def records(project: Project) -> list[Record]:
    with tracking.asking() as ask:
        return decisions.history(ask, project.recipe.name, project.embeddings)


def test_processes_that_register_the_same_at_once_make_one_version(remote: Project, tmp_path: Path) -> None:
    made = remote.make(Kind.EMBEDDINGS, 1.0, language="de", aligned_with="a1" * 32)
    made.copy_to(tmp_path / "together" / "made")
    processes = [
        started(REGISTER, remote.run, tmp_path / "together", remote.embeddings, number) for number in range(PROCESSES)
    ]
    client = MlflowClient()
    experiment = client.get_run(remote.run).info.experiment_id
    while len(client.search_runs([experiment])) <= PROCESSES:
        time.sleep(0.1)
    (tmp_path / "together" / "go").touch()
    versions = {said(process).split()[0] for process in processes}
    [version] = client.search_model_versions(f"name='{remote.embeddings}'")
    assert versions == {str(version.version)}
    [model] = [each for each in client.search_logged_models([experiment]) if each.name == remote.embeddings]
    assert (str(model.status), f"models:/{model.model_id}") == ("READY", version.source)
    assert (version.tags["fingerprint"], version.tags["score"]) == (made.fingerprint, "0.5")
    with tracking.asking() as ask:
        fetched = bring(
            ask,
            version_of(ask, remote.embeddings, int(version.version)),
            Kind.EMBEDDINGS,
            tmp_path / "back",
        )
    assert fetched.manifest == made.manifest


def test_who_registers_the_same_later_leaves_no_files_of_its_own(
    remote: Project, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found no files of another one's, and brings its own after the other one has made the version."""
    made = remote.make(Kind.EMBEDDINGS, 1.0, language="de", aligned_with="a1" * 32)
    made.copy_to(tmp_path / "together" / "made")
    (tmp_path / "together" / "go").touch()
    create = "POST /api/2.0/mlflow/logged-models"
    with proxy_to(server) as proxy:
        proxy.fault = lambda request: Fault.HELD if request == create else Fault.NONE
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        process = started(REGISTER, remote.run, tmp_path / "together", remote.embeddings, "slow")
        proxy.wait_until(lambda: bool(proxy.injected))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
        assert remote.register(remote.embeddings, made) == 1
        proxy.released.set()
        assert said(process).split()[0] == "1"
    client = MlflowClient()
    [version] = client.search_model_versions(f"name='{remote.embeddings}'")
    [model] = client.search_logged_models([client.get_run(remote.run).info.experiment_id])
    assert version.source == f"models:/{model.model_id}"


def test_of_challengers_that_are_promoted_at_once_one_wins_and_the_others_are_told(
    remote: Project, tmp_path: Path
) -> None:
    number, mark = remote.register_primary()
    remote.promote(remote.primary, number)
    numbers = [remote.register_embeddings(mark, float(value), masked=0.3) for value in range(1, PROCESSES + 1)]
    processes = [started(PROMOTE, remote.embeddings, each, tmp_path / "go") for each in numbers]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    ended = dict(zip(numbers, map(said, processes), strict=True))
    [winner] = [each for each, end in ended.items() if end.startswith("moved")]
    assert remote.champion(remote.embeddings) == winner
    kept = records(remote)
    # Equally good ones that came later than the winner was seen are refused by the gate, not overtaken.
    assert [each.decision.after for each in kept if each.outcome is Outcome.DONE] == [winner]
    assert {each.decision.after for each in kept} == {*numbers}
    assert {each.outcome for each in kept} <= {Outcome.DONE, Outcome.OVERTAKEN, Outcome.REFUSED}


def test_a_promoter_that_is_slower_than_another_is_overtaken_and_told(
    remote: Project, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decision is on its way to the server while the other one's is carried out."""
    number, mark = remote.register_primary()
    remote.promote(remote.primary, number)
    slow, fast = (remote.register_embeddings(mark, value, masked) for value, masked in ((1.0, 0.5), (2.0, 0.3)))
    create = "POST /api/2.0/mlflow/model-versions/create"
    with proxy_to(server) as proxy:
        proxy.fault = lambda request: Fault.HELD if request == create else Fault.NONE
        (tmp_path / "go").touch()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        process = started(PROMOTE, remote.embeddings, slow, tmp_path / "go")
        proxy.wait_until(lambda: bool(proxy.injected))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
        assert remote.promote(remote.embeddings, fast, by="the fast one").moved
        proxy.released.set()
        told = said(process)
    assert "overtaken" in told
    assert f"the fast one decided to promote version {fast}" in told
    assert remote.champion(remote.embeddings) == fast
    assert [(each.decision.after, each.outcome) for each in records(remote)] == [
        (fast, Outcome.DONE),
        (slow, Outcome.OVERTAKEN),
    ]


def test_a_promoter_that_was_taken_for_lost_does_not_undo_what_came_after(
    remote: Project, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lower number, and moves the alias only after another command has finished it and gone on."""
    number, mark = remote.register_primary()
    remote.promote(remote.primary, number)
    slow, better = (remote.register_embeddings(mark, value, masked) for value, masked in ((1.0, 0.3), (2.0, 0.5)))
    alias = "POST /api/2.0/mlflow/registered-models/alias"
    with proxy_to(server) as proxy:
        proxy.fault = lambda request: Fault.HELD if request == alias else Fault.NONE
        (tmp_path / "go").touch()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        process = started(PROMOTE, remote.embeddings, slow, tmp_path / "go")
        proxy.wait_until(lambda: bool(proxy.injected))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
        assert remote.promote(remote.embeddings, better).before == slow
        proxy.released.set()
        said(process)
    assert remote.champion(remote.embeddings) == better
    assert [(each.decision.after, each.outcome) for each in records(remote)] == [
        (slow, Outcome.DONE),
        (better, Outcome.DONE),
    ]
