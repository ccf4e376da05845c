"""Package metadata, the lock and the Makefile agree with each other."""

import itertools
import re
import tomllib
from importlib.metadata import version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lingraft
from tests.makefile import ROOT, make

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()}
LOCK_LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
LOCK = {canonicalize_name(name): pin for name, pin in (line.split("==") for line in LOCK_LINES)}


def test_installed_version_is_the_version_of_the_sources() -> None:
    assert version("lingraft") == lingraft.__version__


def test_changelog_has_a_place_for_what_is_not_released() -> None:
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_extra_all_has_every_extra_but_the_alternatives_and_the_tools() -> None:
    (everything,) = EXTRAS["all"]
    assert everything.extras == set(EXTRAS) - {"all", "cpu", "gpu", "dev", "docs", "mutants"}


def test_cpu_and_gpu_bring_different_packages_of_the_same_version() -> None:
    (cpu,), (gpu,) = EXTRAS["cpu"], EXTRAS["gpu"]
    assert (cpu.name, gpu.name) == ("onnxruntime", "onnxruntime-gpu")
    assert cpu.specifier == gpu.specifier
    assert LOCK[cpu.name] == LOCK[gpu.name]


def test_lock_pins_every_named_dependency_within_its_range() -> None:
    requirements = itertools.chain(map(Requirement, PROJECT["dependencies"]), *EXTRAS.values())
    named = [requirement for requirement in requirements if requirement.name != "lingraft"]
    unmet = [str(each) for each in named if not each.specifier.contains(LOCK[canonicalize_name(each.name)])]
    assert not unmet


def test_lock_names_versions_and_no_places() -> None:
    odd = [line for line in LOCK_LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)]
    assert not odd


def test_what_runs_here_is_what_the_lock_pins() -> None:
    names = {Requirement(line).name for line in PROJECT["dependencies"]}
    installed = {name: version(name).partition("+")[0] for name in names}
    assert installed == {name: LOCK[canonicalize_name(name)] for name in names}


def test_make_alone_prints_every_target_and_setting() -> None:
    source = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", source, re.MULTILINE)
    settings = re.findall(r"^([A-Z_]+) \?=", source, re.MULTILINE)
    assert targets
    assert settings

    printed = {line.split()[0] for line in make().stdout.splitlines() if line.startswith("  ")}

    assert printed == {*targets[1].replace("\\", "").split(), *settings}


def test_make_passes_its_settings_to_the_demo() -> None:
    commands = make("--dry-run", "demo", "TEXT=/texts", "DEMO=out", "RECIPE=mine.toml").stdout
    assert "-m pipelines demo --recipe 'mine.toml' --out 'out' --text '/texts'" in commands
    commands = make("--dry-run", "demo-compare", "SCRATCH=out").stdout
    assert "-m pipelines demo --recipe recipes/demo-scratch.toml --out 'out' --compare" in commands


def test_make_refuses_an_accelerator_that_it_does_not_know() -> None:
    run = make("install", "ACCELERATOR=tpu")
    assert run.returncode != 0
    assert "ACCELERATOR is 'tpu', but must be cpu or gpu" in run.stderr
