"""Pipelines that begin with a pretrained model, run for real by kfp.local on a tiny embedding model."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import LingraftError
from lingraft.huggingface.export import export_hf
from lingraft.reports.run.records import RunRecords
from lingraft.serving.bundle import Bundle
from lingraft.source_model import load_recipe, open_model
from lingraft.tables import percent
from lingraft.tracking import fetch
from pipelines import build, local
from pipelines.demo import ask_examples
from pipelines.page_index import IN_TEN, PageIndex, search_table, searches
from pipelines.plan import planned_steps
from tests.huggingface.embedding_models import make_embedding_model
from tests.made_up import write
from tests.pipelines.finished import Finished
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]
RECIPE = """
name = "search"
targets = ["de"]
system = "MINIPOST"

[source]
model = "{model}"

[text]
kind = "folder"
path = "{text}"

[tokenizer]
vocabulary = 120

[encoder]
block_tokens = 16

[mini]
steps = 4
batch_blocks = 8
learning_rate = 1e-3
fresh_layers = 1

[adaptation]
depth = 1
initialisation = "aligned"
steps = 4
warmup_steps = 0
batch_blocks = 8
learning_rate = 1e-3

[[tasks]]
name = "topic"
kind = "documents"

[tasks.finetuning]
epochs = 1
learning_rate = 1e-3
seeds = [1]

[[tasks]]
name = "{imported}"
kind = "retrieval"
test = {{ kind = "documents", queries = "titles" }}

[tasks.examples]
en = "ba de"
de = "ki lo"

[gate]
margin = -0.9
tolerance = 0.99
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    make_embedding_model(tmp_path)
    write(tmp_path / "text", ("en", "de"))
    return tmp_path


def recipe_of(project: Path, imported: str = "retrieval") -> Recipe:
    file = project / "recipe.toml"
    file.write_text(RECIPE.format(model=project / "model", text=project / "text", imported=imported), encoding="utf-8")
    return load_recipe(file)


def test_a_model_becomes_a_registered_source_to_which_a_language_is_added(project: Path) -> None:
    recipe, out = recipe_of(project), project / "out"
    pipeline = build.source_pipeline(recipe)
    kinds = [step.kind for step in planned_steps(pipeline, {})]
    assert "import-model" in kinds
    assert not {"pretrain", "train-tokenizer"} & {*kinds}
    local.set_up(out)
    local.run(pipeline, out)
    report = local.run(build.language_pipeline(recipe), out)
    assert report

    finished = Finished(out, recipe, os.environ["MLFLOW_TRACKING_URI"])
    primary = finished.champion("primary")
    model = open_model(recipe.source)
    manifest = json.loads((model.primary / "manifest.json").read_text(encoding="utf-8"))
    origin = manifest["record"]["origin"]
    assert primary.tags["origin.name"] == origin["name"] == "model"
    assert primary.tags["origin.sha"] == origin["sha"]
    assert finished.champion("task-retrieval").tags["aligned_with"] == primary.tags["fingerprint"]
    assert finished.champion("mini-minipost-1").tags["aligned_with"] == primary.tags["fingerprint"]
    learned = finished.champion("embeddings-de")
    assert {"zero_shot_retrieval", "zero_shot_topic"} <= learned.tags.keys()
    assert set(finished.runs()["source"][1]) == {
        *("text-en", "blocks-en", "import-model", "build-mini", "finetune-topic-1", "evaluate-source"),
        "register-source",
    }
    [tokenizer] = finished.artifacts("language", "train-tokenizer", "tokenizer", Kind.TOKENIZER)
    assert tokenizer.manifest.details["borrowed"] > 0
    for task in ("topic", "retrieval"):
        fetched = fetch(f"search-bundle-{task}", Kind.BUNDLE, project / task)
        assert set(fetched.manifest.details["languages"]) == {"en", "de"}
        Bundle.load(project / task).run_self_test()
    _an_index_is_asked(finished, RunRecords.load(report), project)


def _an_index_is_asked(finished: Finished, records: RunRecords, project: Path) -> None:
    """The model's own vectors are found by German, through the endpoint and by the guide's exported model."""
    recipe = finished.recipe
    [task] = searches(recipe)
    index = PageIndex.of(recipe, task, project / "search")
    assert PageIndex.of(recipe, task, project / "search").sha256 == index.sha256  # a demo that is run again
    assert len(index.titles) == records.source.tasks[-1].examples > 20
    answers = {each.language: each.found for each in ask_examples(recipe, task, project / "retrieval", index)}
    assert {found[0][0] for found in answers.values()} <= {*index.titles}
    [head, _, english, german, _] = search_table(records, task.name)
    assert [line.split()[0] for line in (english, german)] == ["English", "German"]
    scores = records.languages[0].task_scores[task.name]
    assert german.split()[-3:] == [percent(scores.score.mean), "/", percent(scores.others[IN_TEN].mean)]
    assert head.endswith("after learning")

    for name, kind in (("primary", Kind.PRIMARY), ("embeddings-de", Kind.EMBEDDINGS), ("task-retrieval", Kind.TASK)):
        fetch(f"search-{name}", kind, project / name)
    export_hf(project / "primary", project / "hf", project / "embeddings-de", project / "task-retrieval")
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "search-an-index.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    asked: dict[str, Any] = {}
    code = code.replace("pages.faiss", str(index.file)).replace("work/hf/de", str(project / "hf"))
    exec(code.replace("Wie sortiere ich eine Spalte?", task.asked("de")["text"]), asked)
    assert index.titles[int(asked["pages"][0, 0])] == answers["de"][0][0]


def test_a_task_that_the_model_does_not_bring_is_refused(project: Path) -> None:
    local.set_up(project / "out")
    with pytest.raises(
        LingraftError, match=r"tasks \['search'\] of kind 'retrieval' have no train and dev.*'retrieval'"
    ):
        local.run(build.source_pipeline(recipe_of(project, imported="search")), project / "out")
