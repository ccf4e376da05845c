"""Both images by the rules: hadolint's, and ours that it does not know."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

import lingraft

ROOT = Path(__file__).parents[2]
IMAGES = ("train", "serve")
HADOLINT = Path(sys.executable).with_name("hadolint")


@dataclass(frozen=True)
class Instruction:
    name: str
    value: str


def read_stages(image: str) -> list[list[Instruction]]:
    """A Dockerfile's instructions, one list a stage, starting with its FROM; ARGs before the first FROM left out."""
    source = (ROOT / "docker" / f"{image}.Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", source, flags=re.MULTILINE))
    stages: list[list[Instruction]] = []
    for line in filter(None, joined.splitlines()):
        name, value = line.split(maxsplit=1)
        if name == "FROM":
            stages.append([])
        if stages:
            stages[-1].append(Instruction(name, value))
    return stages


def values(stage: list[Instruction], name: str) -> list[str]:
    return [instruction.value for instruction in stage if instruction.name == name]


def pip_installs(stage: list[Instruction]) -> list[str]:
    return re.findall(r"pip install [^&]*", " && ".join(values(stage, "RUN")))


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HADOLINT, "--no-color", path], capture_output=True, text=True, check=False)


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_hadolint_finds_nothing(image: str) -> None:
    run = hadolint(ROOT / "docker" / f"{image}.Dockerfile")
    assert run.returncode == 0, run.stdout


def test_every_dependency_is_installed_under_the_one_lock(image: str) -> None:
    dependencies, *later = read_stages(image)
    torch, others = pip_installs(dependencies)
    assert "--constraint constraints.txt" in torch
    assert "--constraint constraints.txt" in others
    assert all("--no-deps" in run for stage in later for run in values(stage, "RUN") if "pip " in run)


def test_dependencies_are_layered_before_the_sources(image: str) -> None:
    dependencies, project, final = read_stages(image)
    assert values(dependencies, "COPY") == [
        "constraints.txt ./",
        "pyproject.toml LICENSE ./",
        "lingraft/_version.py lingraft/",
    ]
    assert {"README.md ./", "lingraft lingraft", "components components", "pipelines pipelines"} == set(
        values(project, "COPY")
    )
    assert values(final, "COPY") == ["--from=dependencies /opt/venv /opt/venv"]


def test_every_copied_path_is_in_the_build_context(image: str) -> None:
    sources = {
        source.split("/")[0]
        for stage in read_stages(image)
        for value in values(stage, "COPY")
        if not value.startswith("--from")
        for source in value.split()[:-1]
    }
    allowed = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert sources <= allowed


def test_extras_are_ones_that_the_project_has(image: str) -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = re.search(r"\.\[([^\]]+)\]", " ".join(values(read_stages(image)[0], "RUN")))
    assert named
    assert set(named[1].replace("${ACCELERATOR}", "cpu").split(",")) <= extras


def test_train_image_has_kfp_because_steps_do_not_install_it() -> None:
    assert ".[pipelines," in " ".join(values(read_stages("train")[0], "RUN"))


def test_final_stage_ends_as_the_numeric_user_of_the_manifests(image: str) -> None:
    final = read_stages(image)[-1]
    assert values(final, "USER") == ["10001:10001"]
    after = [each.name for each in final[[each.name for each in final].index("USER") :]]
    assert not {"RUN", "COPY", "ADD"} & set(after)
    assert "runAsUser: 10001" in (ROOT / "manifests/base/endpoint.yaml").read_text()


def test_commands_have_exec_form_so_that_sigterm_reaches_python(image: str) -> None:
    final = read_stages(image)[-1]
    (entrypoint,), (arguments,) = values(final, "ENTRYPOINT"), values(final, "CMD")
    assert json.loads(entrypoint)[0] == "lingraft"
    assert isinstance(json.loads(arguments), list)


def test_image_version_is_the_library_version(image: str) -> None:
    assert f"VERSION={lingraft.__version__}" in values(read_stages(image)[-1], "ARG")


def test_serve_asks_its_own_port_whether_it_is_ready() -> None:
    final = read_stages("serve")[-1]
    (health,) = values(final, "HEALTHCHECK")
    assert "http://127.0.0.1:8080/v2/health/ready" in health
    assert values(final, "EXPOSE") == ["8080 8081"]
    assert "--port=8080" in json.loads(values(final, "CMD")[0])
