"""The YAML that a cluster is given: its steps and their order, and what every step must ask of Kubernetes.

Listings of the pipelines are held to those in tests/golden. After a wanted change, `make golden` writes them anew; read
their difference before committing it.
"""

import inspect
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingraft.artifacts import cache
from lingraft.config.cluster import Cluster, Profile
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.tasks import Task, TaskFile
from lingraft.config.training import MiniBuilding
from lingraft.steps import runner
from pipelines.__main__ import compile_all
from pipelines.catalogue import PIPELINES
from pipelines.cluster import UNDISTURBED
from tests.pipelines.compiled import ROOT, Document, compiled, mismatches, read, shipped, stand_in
from tests.pipelines.listing import listing

DOCKERFILE = ROOT / "docker" / "train.Dockerfile"
GOLDEN = ROOT / "tests" / "golden"
OF_DEMO = sorted(PIPELINES.keys() - {"paper"})
"""The comparison of systems is the base recipe's only."""
LISTED = [("demo", name) for name in ("source", "language")] + [("demo-scratch", name) for name in OF_DEMO]
"""Pipelines that begin with a model, and such that pretrain and search a depth; then the comparison of systems."""
LISTED.append(("base", "paper"))
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['pipelinechannel--(\w+)'\]\}\}")
TRAINING_STEPS = {
    *("pretrain", "build-mini", "finetune", "evaluate-source", "try-depths", "search-depth", "adapt"),
    *("evaluate-language", "compare"),
}
DATA_STEPS = {
    "import-model",
    "prepare-text",
    "train-tokenizer",
    "build-blocks",
    "build-vectors",
    "initialise",
}
"""Steps that read all text of a language."""


def _steps(documents: list[Document]) -> dict[str, tuple[Document, Document]]:
    """Container and Kubernetes settings by step, where nobody sets a parameter."""
    specification, settings = documents
    parameters = specification["root"]["inputDefinitions"]["parameters"]
    containers = specification["deploymentSpec"]["executors"]
    places = settings["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert containers.keys() == places.keys()
    found = {}
    for name, executor in containers.items():
        resources = _unset(executor["container"]["resources"], parameters)
        found[name.removeprefix("exec-")] = (executor["container"] | {"resources": resources}, places[name])
    return found


def _unset(value: Any, parameters: Document) -> Any:
    """Resources with the defaults of the parameters that they name."""
    if isinstance(value, dict):
        return {key: _unset(child, parameters) for key, child in value.items()}
    named = isinstance(value, str) and _PARAMETER.fullmatch(value)
    return parameters[named[1]]["defaultValue"] if named else value


def _kind(step: str) -> str:
    """A step's name, whichever time it stands in its pipeline."""
    return re.sub(r"-\d+$", "", step)


def _trains(step: str) -> bool:
    """Whether a step trains or judges."""
    return _kind(step) in TRAINING_STEPS


def _profile(cluster: Cluster, step: str) -> Profile:
    """What a step's own pod asks for."""
    if _trains(step):
        return cluster.training
    return cluster.data_profile if _kind(step) in DATA_STEPS else cluster.light


@pytest.fixture(scope="module")
def demo() -> Recipe:
    return Recipe.load(ROOT / "recipes/demo-scratch.toml")


@pytest.fixture(scope="module")
def base() -> Recipe:
    return Recipe.load(ROOT / "recipes/base.toml")


@pytest.fixture(scope="module", params=sorted(PIPELINES))
def documents(request: pytest.FixtureRequest) -> list[Document]:
    """Each pipeline of the base recipe in turn."""
    return read(shipped("base") / f"{request.param}.yaml")


@pytest.fixture(scope="module")
def steps(documents: list[Document]) -> dict[str, tuple[Document, Document]]:
    return _steps(documents)


@pytest.mark.parametrize(("recipe", "pipeline"), LISTED)
def test_the_pipelines_are_as_they_are_listed(recipe: str, pipeline: str) -> None:
    file = GOLDEN / recipe / f"{pipeline}.txt"
    made = listing(read(shipped(recipe) / f"{pipeline}.yaml"))
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made, encoding="utf-8")
    assert made == file.read_text(encoding="utf-8"), "if this change is wanted, run `make golden`"


@pytest.mark.parametrize("recipe", sorted(path.stem for path in (ROOT / "recipes").glob("*.toml")))
def test_every_task_is_given_the_types_that_it_takes(recipe: str) -> None:
    assert [*map(read, shipped(recipe).iterdir())]  # which refuses any other


def test_a_task_that_is_given_another_type_is_found(demo: Recipe) -> None:
    [specification, _] = read(shipped("demo-scratch") / "language.yaml")
    text = json.dumps(specification)
    item = '"pipelinechannel--depths-of-Output-loop-item": {"parameterType": "'
    assert f"{item}NUMBER_INTEGER" in text
    untyped = json.loads(text.replace(f"{item}NUMBER_INTEGER", f"{item}STRING"))
    assert [*mismatches(untyped)] == ["adapt: depth takes NUMBER_INTEGER, and is given STRING"]


def test_every_parameter_is_described(documents: list[Document]) -> None:
    parameters = documents[0]["root"]["inputDefinitions"]["parameters"]
    assert all(given["description"].endswith((".", ").")) for given in parameters.values())
    for name, given in parameters.items():
        if name.endswith("_memory"):
            stage = name.removesuffix("_memory")
            told = f"{Profile.model_fields['memory'].description} Here for the stage {stage!r}."
            assert given["description"] == told


def _body(specification: Document) -> Document:
    """The steps of a pipeline, all of which are within its exit handler."""
    return specification["components"]["comp-exit-handler-1"]


def _texts(value: Any) -> Iterator[str]:
    """All strings of a document."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)


def test_the_recipe_is_given_to_one_step_and_to_all_others_as_its_artifact(
    documents: list[Document], base: Recipe
) -> None:
    specification, _ = documents
    check = _body(specification)["dag"]["tasks"]["check-inputs"]["inputs"]["parameters"]
    assert Recipe.parse(check["settings"]["runtimeValue"]["constant"]) == base
    assert check["file"]["runtimeValue"]["constant"] == "base.toml"
    assert sum('"mlm_heads"' in text for text in _texts(specification)) == 1
    assert f"Recipe: base.toml, digest {base.digest()[:12]}." in specification["pipelineInfo"]["description"]


def test_every_step_runs_the_recipes_image_within_its_profile_as_its_user_and_reaches_the_stores(
    steps: dict[str, Any], base: Recipe
) -> None:
    cluster, user = base.cluster, re.search(r"^USER (\d+):(\d+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert user
    for step, (container, place) in steps.items():
        profile = _profile(cluster, step)
        assert container["image"] == cluster.image
        resources = container["resources"]
        assert (resources["resourceCpuRequest"], resources["resourceCpuLimit"]) == (profile.cpu,) * 2
        assert (resources["resourceMemoryRequest"], resources["resourceMemoryLimit"]) == (profile.memory,) * 2
        assert place["securityContext"] == {"runAsUser": user[1], "runAsGroup": user[2], "runAsNonRoot": True}
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert (
            environment.items()
            >= {
                "HOME": "/tmp",
                runner.RETRIES: str(profile.retries),
                "LINGRAFT_CACHE": f"{cluster.storage_path}/lingraft",
                cache.RESULTS_VARIABLE: cluster.results_place,
            }.items()
        )
        address, credentials = place["secretAsEnv"]
        assert {secret["secretName"] for secret in (address, credentials)} == {cluster.tracking_secret}
        assert address["keyToEnv"] == [{"envVar": "MLFLOW_TRACKING_URI", "secretKey": "MLFLOW_TRACKING_URI"}]
        assert (address.get("optional", False), credentials["optional"]) == (False, True)
        assert {key["secretKey"] for key in credentials["keyToEnv"]} == {
            *(f"MLFLOW_TRACKING_{key}" for key in ("USERNAME", "PASSWORD", "TOKEN")),
            "LINGRAFT_SEARCH_STORAGE",
        }
        (claim,) = place["pvcMount"]
        assert (claim["constant"], claim["mountPath"]) == (cluster.storage_claim, cluster.storage_path)


def test_what_trains_in_the_base_recipe_has_an_accelerator_and_keeps_its_node() -> None:
    found = {step: parts for file in shipped("base").iterdir() for step, parts in _steps(read(file)).items()}
    assert found.keys() >= TRAINING_STEPS - {"build-mini"}  # which the recipe's system has not
    for step, (container, place) in found.items():
        assert ("accelerator" in container["resources"]) == _trains(step)
        assert place.keys() >= {"nodeSelector", "emptyDirMounts"} or not _trains(step)
        # A run whose pod is evicted has failed, which is cheap for steps of minutes only.
        takes_long = _trains(step) or _kind(step) in DATA_STEPS
        assert place.get("podMetadata", {}).get("annotations", {}) == (UNDISTURBED if takes_long else {})


def test_the_base_recipe_trains_on_the_nodes_that_the_manifests_name(base: Recipe) -> None:
    patch = yaml.safe_load((ROOT / "manifests/overlays/prod/endpoint.yaml").read_text(encoding="utf-8"))
    served = {operation["path"].rpartition("/")[2]: operation["value"] for operation in patch}
    training = base.cluster.training
    assert training.node_selector == served["nodeSelector"]
    [toleration] = training.tolerations
    [theirs] = served["tolerations"]
    assert toleration.model_dump().items() >= theirs.items()


def test_without_a_task_nothing_is_finetuned_or_served(demo: Recipe, tmp_path: Path) -> None:
    assert demo.tasks
    without = compiled(demo.model_copy(update={"tasks": ()}), tmp_path, "source", "language")
    for name, gone in (("source", "finetune"), ("language", "export-bundle")):
        assert _steps(read(shipped("demo-scratch") / f"{name}.yaml")).keys() - _steps(without[name]).keys() == {gone}


def test_every_task_is_finetuned_with_every_seed_and_bundled_like_a_primary_that_is_to_be(
    demo: Recipe, tmp_path: Path
) -> None:
    files = {split: TaskFile(kind="file", path=f"{split}.tsv") for split in ("train", "dev", "test")}
    mood = Task(name="mood", kind="texts", **files)
    cluster = demo.cluster.model_copy(update={"tracking_secret": "theirs", "hub_secret": "hub", "storage_claim": "big"})
    changes = {"tasks": (*demo.tasks, mood), "serve_primary": True, "cluster": cluster}
    made = compiled(demo.model_copy(update=changes), tmp_path, "source", "language")
    for _, place in _steps(made["source"]).values():
        assert (place["secretAsEnv"][0]["secretName"], place["pvcMount"][0]["constant"]) == ("theirs", "big")
        assert place["secretAsEnv"][-1]["keyToEnv"] == [{"envVar": "HF_TOKEN", "secretKey": "HF_TOKEN"}]
    (loop,) = (
        task["parameterIterator"]["items"]["raw"]
        for task in _body(made["source"][0])["dag"]["tasks"].values()
        if "parameterIterator" in task
    )
    jobs = [f"help-topic/{seed}" for seed in (1, 2)] + [f"mood/{seed}" for seed in (1, 2, 3, 4, 5)]
    assert json.loads(loop) == jobs
    exports = [
        task["inputs"]["parameters"]["task"]["runtimeValue"]["constant"]
        for name, task in _body(made["language"][0])["dag"]["tasks"].items()
        if name.startswith("export-bundle")
    ]
    assert exports == ["help-topic", "mood", "primary"]


def test_only_minipost_has_a_step_that_builds_a_mini_model(demo: Recipe, tmp_path: Path) -> None:
    building = MiniBuilding(steps=10, batch_blocks=8, learning_rate=1e-3)
    post = demo.model_copy(update={"mini": building}).for_system(System.MINIPOST)
    built = compiled(post, tmp_path, "source", "language")
    joint = {name: _steps(read(shipped("demo-scratch") / f"{name}.yaml")) for name in built}
    assert _steps(built["source"]).keys() - joint["source"].keys() == {"build-mini"}
    (container, _), profile = _steps(built["source"])["build-mini"], post.cluster.training
    assert container["resources"]["resourceCpuLimit"] == profile.cpu
    assert _steps(built["language"]).keys() == joint["language"].keys()
    tasks = _body(built["source"][0])["dag"]["tasks"]
    assert "build-mini" in tasks["register-source"]["dependentTasks"]  # which makes it champion


def test_what_a_stage_asks_of_a_node_can_be_set_for_a_run(demo: Recipe, tmp_path: Path) -> None:
    gpus = Profile(
        cpu="9",
        memory="19Gi",
        accelerator="nvidia.com/gpu",
        accelerator_count=2,
        shared_memory="2Gi",
        node_selector={"pool": "big"},
    )
    cluster = demo.cluster.model_copy(update={"stages": {"pretraining": gpus, "judging": Profile()}})
    asking = demo.model_copy(update={"cluster": cluster})
    specification, platform = compiled(asking, tmp_path, "source")["source"]
    parameters = specification["root"]["inputDefinitions"]["parameters"]
    training = cluster.training
    assert {name: given["defaultValue"] for name, given in parameters.items() if "_" in name} == {
        "pretraining_cpu": "9",
        "pretraining_memory": "19Gi",
        "pretraining_accelerator": "nvidia.com/gpu",
        "pretraining_accelerator_count": "2",
        "pretraining_node_selector": {"pool": "big"},
        "pretraining_tolerations": [],
        "finetuning_cpu": training.cpu,
        "finetuning_memory": training.memory,
        "finetuning_node_selector": {},
        "finetuning_tolerations": [],
        "judging_cpu": "2",
        "judging_memory": "4Gi",
        "judging_node_selector": {},
        "judging_tolerations": [],
    }
    # The driver reads no numbers where it sets up pods.
    assert {given["parameterType"] for given in parameters.values()} == {"STRING", "STRUCT", "LIST"}
    resources = specification["deploymentSpec"]["executors"]["exec-pretrain"]["container"]["resources"]
    named = {key: _PARAMETER.fullmatch(value) for key, value in resources.items() if key != "accelerator"}
    assert {found[1] for found in named.values() if found} == {"pretraining_cpu", "pretraining_memory"}
    counted = _PARAMETER.fullmatch(resources["accelerator"]["resourceCount"])
    assert counted
    assert counted[1] == "pretraining_accelerator_count"
    within = "pipelinechannel--"  # KFP's prefix for what a group of steps gets from its pipeline
    placed = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-pretrain"]
    assert placed["nodeSelector"] == {
        "nodeSelectorJson": {"componentInputParameter": f"{within}pretraining_node_selector"}
    }
    assert placed["tolerations"] == [
        {"tolerationJson": {"componentInputParameter": f"{within}pretraining_tolerations"}}
    ]
    assert placed["podMetadata"]["annotations"] == UNDISTURBED
    (shared,) = placed["emptyDirMounts"]
    assert (shared["mountPath"], shared["medium"], shared["sizeLimit"]) == ("/dev/shm", "Memory", "2Gi")


def test_a_pipeline_is_built_without_a_look_for_sources(demo: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: Any) -> None:
        raise AssertionError("KFP asks for the stack hundreds of times, and each would take milliseconds")

    monkeypatch.setattr(inspect, "getframeinfo", look)
    before = inspect.stack
    assert PIPELINES["source"](demo).pipeline_spec
    assert inspect.stack is before


def test_pipelines_that_only_another_recipe_had_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    compile_all(ROOT / "recipes/base.toml", tmp_path)
    (tmp_path / "mine.yaml").write_text("mine")
    capsys.readouterr()
    compile_all(ROOT / "recipes/demo-scratch.toml", tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {*OF_DEMO, "mine"}
    printed = capsys.readouterr()
    gone = [tmp_path / f"{name}.yaml" for name in PIPELINES if name not in OF_DEMO]
    assert gone
    assert printed.err == "".join(f"removed {path}: this recipe has no such pipeline\n" for path in gone)
    assert not any(str(path) in printed.out for path in gone)
