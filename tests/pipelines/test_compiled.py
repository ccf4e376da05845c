"""The YAML that a cluster is given: its steps and their order, and what every step must ask of Kubernetes.

The demo's is held to golden files, too. After a wanted change, `make golden` writes them anew; read their difference
before committing it.
"""

import inspect
import json
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingraft.artifacts import cache, sync
from lingraft.config.cluster import Cluster, Profile, parse_quantity
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.tasks import Task, TaskFile
from lingraft.config.training import MiniBuilding
from lingraft.errors import ArtifactError
from lingraft.steps.launch import launcher
from lingraft.steps.launch.pods import UNDISTURBED
from pipelines.__main__ import compile_all
from pipelines.catalogue import PIPELINES
from tests.pipelines.compiled import ROOT, Document, compiled, read, shipped, stand_in

GOLDEN = ROOT / "tests" / "golden" / "demo"
PIPELINES_OF = {"base": sorted(PIPELINES), "demo": sorted(PIPELINES.keys() - {"paper"})}
"""The comparison of systems is the base recipe's only."""
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['pipelinechannel--(\w+)'\]\}\}")
TRAINING_STEPS = {
    *("pretrain", "build-mini", "finetune", "evaluate-source", "try-depths", "search-depth", "adapt"),
    *("evaluate-language", "adapt-over-mini", "judge-source", "judge-language"),
}
DATA_STEPS = {"prepare-text", "train-tokenizer", "build-blocks", "build-vectors", "initialise", "prepare-language"}
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
        return cluster.launcher if cluster.training.launched else cluster.training
    return cluster.data_profile if _kind(step) in DATA_STEPS else cluster.light


@pytest.fixture(scope="module")
def demo() -> Recipe:
    return Recipe.load(ROOT / "recipes/demo.toml")


@pytest.fixture(
    scope="module",
    params=[(name, pipeline) for name, pipelines in PIPELINES_OF.items() for pipeline in pipelines],
    ids="-".join,
)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each pipeline of each recipe in turn."""
    name, pipeline = request.param
    return name, pipeline


@pytest.fixture(scope="module")
def recipe(case: tuple[str, str]) -> Recipe:
    return Recipe.load(ROOT / "recipes" / f"{case[0]}.toml")


@pytest.fixture(scope="module")
def documents(case: tuple[str, str]) -> list[Document]:
    name, pipeline = case
    return read(shipped(name) / f"{pipeline}.yaml")


@pytest.fixture(scope="module")
def steps(documents: list[Document]) -> dict[str, tuple[Document, Document]]:
    return _steps(documents)


def _lasting(yaml_file: Path) -> str:
    """A compiled pipeline without what a new release of kfp changes, and its comments, whose order is chance."""
    lines = yaml_file.read_text(encoding="utf-8").splitlines(keepends=True)
    lasting = [line for line in lines if not line.startswith(("sdkVersion: ", "# "))]
    assert len(lasting) < len(lines)
    return "".join(lasting)


def test_the_demos_pipelines_are_the_golden_ones() -> None:
    golden = {path.name: _lasting(path) for path in GOLDEN.iterdir()}
    made = {path.name: _lasting(path) for path in shipped("demo").iterdir()}
    assert made.keys() == golden.keys() == {f"{pipeline}.yaml" for pipeline in PIPELINES_OF["demo"]}
    for file, text in made.items():
        assert text == golden[file], f"{file} changed; if that is wanted, run `make golden`"


ORDER = {
    "source": """
        check-inputs:
        open-run: check-inputs
        prepare-text: open-run
        train-tokenizer: open-run prepare-text
        build-blocks: open-run prepare-text train-tokenizer
        pretrain: build-blocks open-run train-tokenizer
        for-loop-3, 20 at most 14: open-run prepare-text pretrain
          finetune:
        evaluate-source: build-blocks for-loop-3 open-run prepare-text pretrain
        register-source: evaluate-source for-loop-3 open-run pretrain
    """,
    "depth-search": """
        check-inputs:
        open-run: check-inputs
        fetch-source: open-run
        prepare-text: open-run
        train-tokenizer: open-run prepare-text
        build-blocks: open-run prepare-text train-tokenizer
        initialise: build-blocks fetch-source open-run train-tokenizer
        for-loop-3, 3 at most 3: build-blocks fetch-source initialise open-run prepare-text train-tokenizer
          try-depths:
        search-depth: build-blocks fetch-source for-loop-3 initialise open-run prepare-text train-tokenizer
    """,
    "language": """
        check-inputs:
        open-run: check-inputs
        fetch-source: open-run
        for-loop-2, languages at most 14: fetch-source open-run
          prepare-text:
          depths-of:
          train-tokenizer: prepare-text
          build-blocks: prepare-text train-tokenizer
          initialise: build-blocks train-tokenizer
          for-loop-3, depths-of-Output at most 14: build-blocks depths-of initialise prepare-text train-tokenizer
            adapt:
            evaluate-language: adapt
          register-language: for-loop-3
        export-bundle: fetch-source for-loop-2 open-run
        export-bundle-2: fetch-source for-loop-2 open-run
        export-bundle-3: fetch-source for-loop-2 open-run
        export-bundle-4: fetch-source for-loop-2 open-run
        write-report: export-bundle export-bundle-2 export-bundle-3 export-bundle-4 fetch-source for-loop-2 open-run
        require-languages: for-loop-2 open-run write-report
    """,
    "paper": """
        check-inputs:
        open-run: check-inputs
        prepare-language: open-run
        pretrain: open-run prepare-language
        pretrain-2: open-run prepare-language
        pretrain-3: open-run prepare-language
        build-mini: open-run prepare-language pretrain
        for-loop-3, 20 at most 14: open-run prepare-language pretrain
          finetune:
        for-loop-5, 20 at most 14: open-run prepare-language pretrain-2
          finetune-2:
        for-loop-7, 40 at most 14: open-run prepare-language pretrain-3
          finetune-3:
        judge-source: for-loop-3 open-run prepare-language pretrain
        judge-source-2: for-loop-5 open-run prepare-language pretrain-2
        judge-source-3: for-loop-7 open-run prepare-language pretrain-3
        for-loop-8, languages at most 14: build-mini judge-source judge-source-2 judge-source-3 open-run pretrain"""
    """ pretrain-2 pretrain-3
          prepare-language-2:
          adapt: prepare-language-2
          adapt-2: prepare-language-2
          adapt-3: prepare-language-2
          adapt-over-mini: prepare-language-2
          judge-language: adapt prepare-language-2
          judge-language-2: adapt-2 prepare-language-2
          judge-language-4: adapt-3 prepare-language-2
          judge-language-3: adapt-over-mini prepare-language-2
        gather: for-loop-8 judge-source
        gather-2: for-loop-8 gather judge-source-2
        gather-3: for-loop-8 gather-2 judge-source
        gather-4: for-loop-8 gather-3 judge-source-3
        write-report: gather-4 open-run
    """,
}
"""Steps of the base recipe's pipelines, each with those that it waits for."""


def _waits(task: Document) -> set[str]:
    """The steps that a step waits for; the check of inputs counts only for what is before the tracking run."""
    waits = {*task.get("dependentTasks", [])}
    return waits - {"check-inputs"} if "open-run" in waits else waits


def _outline(specification: Document, component: Document, indent: int = 8) -> Iterator[str]:
    tasks = component["dag"]["tasks"]
    waits = {name: sorted(_waits(task)) for name, task in tasks.items()}
    for name in TopologicalSorter(waits).static_order():
        loop = ""
        if iterator := tasks[name].get("parameterIterator"):
            items = iterator["items"]
            over = len(json.loads(items["raw"])) if "raw" in items else items["inputParameter"].rpartition("--")[2]
            loop = f", {over} at most {tasks[name]['iteratorPolicy']['parallelismLimit']}"
        yield f"{' ' * indent}{name}{loop}: {' '.join(waits[name])}".rstrip()
        inner = specification["components"][tasks[name]["componentRef"]["name"]]
        if "dag" in inner:
            yield from _outline(specification, inner, indent + 2)


@pytest.mark.parametrize("pipeline", ORDER)
def test_the_base_recipes_steps_stand_in_their_order(pipeline: str) -> None:
    specification, _ = read(shipped("base") / f"{pipeline}.yaml")
    assert [*_outline(specification, _body(specification))] == ORDER[pipeline].splitlines()[1:-1]


@pytest.mark.parametrize(
    ("pipeline", "own"),
    [
        ("source", {"language": "en"}),
        ("depth-search", {"target": "tr"}),
        (
            "language",
            {"compare": False, "drop_languages": [], "new_primary": False, "new_labels": False, "languages": None},
        ),
        ("paper", {"languages": None}),
    ],
)
def test_the_base_recipes_parameters_have_its_values(pipeline: str, own: dict[str, Any]) -> None:
    """What launched stages ask of nodes is in the recipe, and no parameter."""
    base = Recipe.load(ROOT / "recipes/base.toml")
    expected = own | ({"languages": [*base.targets]} if "languages" in own else {})
    specification, _ = read(shipped("base") / f"{pipeline}.yaml")
    parameters = specification["root"]["inputDefinitions"]["parameters"]
    assert {name: given["defaultValue"] for name, given in parameters.items()} == expected


def test_every_parameter_is_described(documents: list[Document]) -> None:
    parameters = documents[0]["root"]["inputDefinitions"]["parameters"]
    assert all(given["description"].endswith((".", ").")) for given in parameters.values())
    for name, given in parameters.items():
        if name.endswith("_memory"):
            stage = name.removesuffix("_memory")
            told = f"{Profile.model_fields['memory'].description} Here for the stage {stage!r}."
            assert given["description"] == told


def test_every_step_is_retried_as_often_as_its_profile_says(steps: dict[str, Any], recipe: Recipe) -> None:
    for step, (container, _) in steps.items():
        profile = _profile(recipe.cluster, step)
        assert {"name": launcher.RETRIES, "value": str(profile.retries)} in container["env"]


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
    documents: list[Document], case: tuple[str, str], recipe: Recipe
) -> None:
    specification, _ = documents
    check = _body(specification)["dag"]["tasks"]["check-inputs"]["inputs"]["parameters"]
    assert Recipe.parse(check["settings"]["runtimeValue"]["constant"]) == recipe
    assert check["file"]["runtimeValue"]["constant"] == f"{case[0]}.toml"
    assert sum('"mlm_heads"' in text for text in _texts(specification)) == 1
    assert f"Recipe: {case[0]}.toml, digest {recipe.digest()[:12]}." in specification["pipelineInfo"]["description"]


def test_an_exit_handler_ends_the_tracking_run_however_the_steps_end(documents: list[Document], recipe: Recipe) -> None:
    tasks = documents[0]["root"]["dag"]["tasks"]
    assert tasks.keys() == {"exit-handler-1", "close-run"}
    closing = tasks["close-run"]
    assert closing["dependentTasks"] == ["exit-handler-1"]
    assert closing["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    given = closing["inputs"]["parameters"]
    assert given["project"]["runtimeValue"]["constant"] == recipe.name
    opened = _body(documents[0])["dag"]["tasks"]["open-run"]["inputs"]["parameters"]
    assert given["kfp_run"] == opened["kfp_run"]
    # Drivers look for the group that has ended by this name.
    assert tasks["exit-handler-1"]["taskInfo"]["name"] == given["status"]["taskFinalStatus"]["producerTask"]


def test_every_step_runs_the_recipes_image_within_its_profile(steps: dict[str, Any], recipe: Recipe) -> None:
    for step, (container, _) in steps.items():
        profile = _profile(recipe.cluster, step)
        assert container["image"] == recipe.cluster.image
        resources = container["resources"]
        assert (resources["resourceCpuRequest"], resources["resourceCpuLimit"]) == (profile.cpu,) * 2
        assert (resources["resourceMemoryRequest"], resources["resourceMemoryLimit"]) == (profile.memory,) * 2


def test_every_step_runs_as_the_images_user_with_a_home(steps: dict[str, Any]) -> None:
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "docker/train.Dockerfile").read_text(), re.MULTILINE)
    assert user
    for container, place in steps.values():
        assert place["securityContext"] == {"runAsUser": user[1], "runAsGroup": user[2], "runAsNonRoot": True}
        assert {"name": "HOME", "value": "/tmp"} in container["env"]


def test_every_step_reaches_tracking_and_storage(steps: dict[str, Any], recipe: Recipe) -> None:
    for container, place in steps.values():
        assert {"name": "LINGRAFT_CACHE", "value": f"{recipe.cluster.storage_path}/lingraft"} in container["env"]
        address, credentials = place["secretAsEnv"]
        assert {secret["secretName"] for secret in (address, credentials)} == {recipe.cluster.tracking_secret}
        assert address["keyToEnv"] == [{"envVar": "MLFLOW_TRACKING_URI", "secretKey": "MLFLOW_TRACKING_URI"}]
        assert not address.get("optional")
        assert credentials["optional"]
        assert {key["secretKey"] for key in credentials["keyToEnv"]} == {
            *(f"MLFLOW_TRACKING_{key}" for key in ("USERNAME", "PASSWORD", "TOKEN")),
            "LINGRAFT_SEARCH_STORAGE",
        }
        (claim,) = place["pvcMount"]
        assert (claim["constant"], claim["mountPath"]) == (recipe.cluster.storage_claim, recipe.cluster.storage_path)


def test_no_step_is_left_out_because_it_ran_before(documents: list[Document]) -> None:
    specification, _ = documents
    dags = [part["dag"] for part in (specification["root"], *specification["components"].values()) if "dag" in part]
    tasks = [
        task for dag in dags for name, task in dag["tasks"].items() if not name.startswith(("for-loop", "exit-handler"))
    ]
    assert tasks
    assert not [task for task in tasks if task["cachingOptions"].get("enableCache")]


def test_what_trains_in_the_base_recipe_is_launched_as_a_job_from_a_small_step_that_stays() -> None:
    base = Recipe.load(ROOT / "recipes/base.toml")
    assert base.cluster.training.accelerator
    assert base.cluster.training.launched == "Job"
    found = {step: parts for file in shipped("base").iterdir() for step, parts in _steps(read(file)).items()}
    assert found.keys() >= TRAINING_STEPS
    for step, (container, place) in found.items():
        assert (launcher.STAGE in {one["name"] for one in container["env"]}) == _trains(step)
        assert "accelerator" not in container["resources"]
        assert not place.keys() & {"nodeSelector", "emptyDirMounts"}
        # A run whose pod is evicted has failed, which is cheap for steps of minutes only.
        takes_long = _trains(step) or _kind(step) in DATA_STEPS
        assert place.get("podMetadata", {}).get("annotations", {}) == (UNDISTURBED if takes_long else {})


def test_the_base_recipe_trains_on_the_nodes_that_the_manifests_name() -> None:
    patch = yaml.safe_load((ROOT / "manifests/overlays/prod/endpoint.yaml").read_text(encoding="utf-8"))
    served = {operation["path"].rpartition("/")[2]: operation["value"] for operation in patch}
    training = Recipe.load(ROOT / "recipes/base.toml").cluster.training
    assert training.node_selector == served["nodeSelector"]
    [toleration] = training.tolerations
    [theirs] = served["tolerations"]
    assert toleration.model_dump().items() >= theirs.items()


def test_steps_that_read_text_ask_for_more_than_those_that_look_things_up() -> None:
    cluster = Recipe.load(ROOT / "recipes/base.toml").cluster
    assert parse_quantity(cluster.light.memory) * 4 <= parse_quantity(cluster.data_profile.memory)
    assert parse_quantity(cluster.light.cpu) * 4 <= parse_quantity(cluster.data_profile.cpu)


def _loops(specification: Document) -> list[Document]:
    dags = [part["dag"] for part in (specification["root"], *specification["components"].values()) if "dag" in part]
    tasks = [task for dag in dags for task in dag["tasks"].values()]
    return [task["iteratorPolicy"] for task in tasks if "parameterIterator" in task]


@pytest.mark.parametrize(("name", "limit"), [("base", 14), ("demo", 1)])
def test_languages_and_depths_run_side_by_side_as_many_as_the_recipe_allows(name: str, limit: int) -> None:
    specification, _ = read(shipped(name) / "language.yaml")
    assert _loops(specification) == [{"parallelismLimit": limit}] * 2


def test_without_a_task_nothing_is_finetuned_or_served(demo: Recipe, tmp_path: Path) -> None:
    assert demo.tasks
    without = compiled(demo.model_copy(update={"tasks": ()}), tmp_path, "source", "language")
    for name, gone in (("source", "finetune"), ("language", "export-bundle")):
        assert _steps(read(shipped("demo") / f"{name}.yaml")).keys() - _steps(without[name]).keys() == {gone}


@pytest.fixture(scope="module")
def changed(demo: Recipe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Document]]:
    """The demo's pipelines with two more tasks, a served primary, and another cluster."""
    files = {split: TaskFile(kind="file", path=f"{split}.tsv") for split in ("train", "dev", "test")}
    others = [Task(name=name, kind=kind, **files) for name, kind in (("mood", "texts"), ("xnli", "pairs"))]
    cluster = Cluster(
        image="registry.example/train:9",
        tracking_secret="theirs",
        storage_claim="big",
        storage_path="/big",
        light=Profile(cpu="250m", memory="3Gi"),
        training=Profile(cpu="7", memory="11Gi"),
    )
    recipe = demo.model_copy(update={"tasks": (*demo.tasks, *others), "serve_primary": True, "cluster": cluster})
    return compiled(recipe, tmp_path_factory.mktemp("changed"), *PIPELINES_OF["demo"])


def test_every_task_is_finetuned_with_every_seed_and_bundled_like_a_primary_that_is_to_be(
    changed: dict[str, list[Document]],
) -> None:
    (loop,) = (
        task["parameterIterator"]["items"]["raw"]
        for task in _body(changed["source"][0])["dag"]["tasks"].values()
        if "parameterIterator" in task
    )
    jobs = [f"help-topic/{seed}" for seed in (1, 2, 3)]
    jobs += [f"{name}/{seed}" for name in ("mood", "xnli") for seed in (1, 2, 3, 4, 5)]
    assert json.loads(loop) == jobs
    exports = [
        task["inputs"]["parameters"]["task"]["runtimeValue"]["constant"]
        for name, task in _body(changed["language"][0])["dag"]["tasks"].items()
        if name.startswith("export-bundle")
    ]
    assert exports == ["help-topic", "mood", "xnli", "primary"]


def test_what_a_recipe_says_of_the_cluster_reaches_every_step(changed: dict[str, list[Document]]) -> None:
    for documents in changed.values():
        for step, (container, place) in _steps(documents).items():
            wanted = ("7", "11Gi") if _trains(step) else ("250m", "3Gi")
            assert tuple(container["resources"][f"resource{what}Limit"] for what in ("Cpu", "Memory")) == wanted
            assert container["image"] == "registry.example/train:9"
            assert place["secretAsEnv"][0]["secretName"] == "theirs"
            assert (place["pvcMount"][0]["constant"], place["pvcMount"][0]["mountPath"]) == ("big", "/big")


def test_only_minipost_has_a_step_that_builds_a_mini_model(demo: Recipe, tmp_path: Path) -> None:
    building = MiniBuilding(steps=10, batch_blocks=8, learning_rate=1e-3)
    post = demo.model_copy(update={"mini": building}).for_system(System.MINIPOST)
    built = compiled(post, tmp_path, "source", "language")
    joint = {name: _steps(read(shipped("demo") / f"{name}.yaml")) for name in built}
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
        launch=False,
    )
    cluster = demo.cluster.model_copy(update={"stages": {"pretraining": gpus, "judging": Profile(spot=True)}})
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


def test_a_step_that_trains_answers_prometheus(steps: dict[str, Any], recipe: Recipe) -> None:
    for step, (container, place) in steps.items():
        labels = place.get("podMetadata", {}).get("labels", {})
        trains = _trains(step) and not recipe.cluster.training.launched
        assert ({"name": "LINGRAFT_METRICS_PORT", "value": "9400"} in container["env"]) == trains
        assert (labels == {"lingraft.io/metrics": "true"}) == trains


def test_a_stage_on_spot_nodes_is_launched_from_a_small_step(demo: Recipe, tmp_path: Path) -> None:
    spot = Profile(accelerator="nvidia.com/gpu", accelerator_count=2, shared_memory="2Gi", spot=True)
    cluster = demo.cluster.model_copy(update={"stages": {"adaptation": spot}})
    asking = demo.model_copy(update={"cluster": cluster})
    steps = _steps(compiled(asking, tmp_path, "language")["language"])
    container, place = steps["adapt"]
    assert {"name": launcher.STAGE, "value": "adaptation"} in container["env"]
    assert "accelerator" not in container["resources"]
    assert container["resources"]["resourceMemoryLimit"] == cluster.launcher.memory
    assert not place.keys() & {"nodeSelector", "tolerations", "emptyDirMounts"}
    assert launcher.STAGE not in {one["name"] for one in steps["evaluate-language"][0]["env"]}


def test_every_step_knows_where_results_are_shared_and_by_which_image(steps: dict[str, Any], recipe: Recipe) -> None:
    for container, _ in steps.values():
        assert {"name": sync.RESULTS_VARIABLE, "value": recipe.cluster.results_place} in container["env"]
        assert {"name": cache.IMAGE_VARIABLE, "value": recipe.cluster.image} in container["env"]


def test_a_pipeline_is_built_without_a_look_for_sources(demo: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: Any) -> None:
        raise AssertionError("KFP asks for the stack hundreds of times, and each would take milliseconds")

    monkeypatch.setattr(inspect, "getframeinfo", look)
    before = inspect.stack
    assert PIPELINES["source"](demo).pipeline_spec
    assert inspect.stack is before


@pytest.mark.parametrize("section", ["search", "paper"])
def test_a_pipeline_whose_section_a_recipe_lacks_is_not_compiled(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch)
    text = (ROOT / "recipes/base.toml").read_text(encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(re.sub(rf"\[{section}\]\n(.+\n)+", "", text), encoding="utf-8")
    compile_all(tmp_path / "recipe.toml", tmp_path / "out")
    compiled_ones = {path.stem for path in (tmp_path / "out").iterdir()}
    assert PIPELINES.keys() - compiled_ones == {"depth-search" if section == "search" else section}


def test_pipelines_that_only_another_recipe_had_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    compile_all(ROOT / "recipes/base.toml", tmp_path)
    (tmp_path / "mine.yaml").write_text("mine")
    capsys.readouterr()
    compile_all(ROOT / "recipes/demo.toml", tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {*PIPELINES_OF["demo"], "mine"}
    printed = capsys.readouterr()
    gone = [tmp_path / f"{name}.yaml" for name in PIPELINES_OF["base"] if name not in PIPELINES_OF["demo"]]
    assert gone
    assert printed.err == "".join(f"removed {path}: this recipe has no such pipeline\n" for path in gone)
    assert not any(str(path) in printed.out for path in gone)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot write .*file/compiled"):
        compile_all(ROOT / "recipes/demo.toml", tmp_path / "file" / "compiled")
