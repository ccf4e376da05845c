"""The same over HTTP: what every command does with a server, and what MLflow's pages ask that server for."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.errors import PromotionError
from tests.tracking.promotion.project import Project, lingraft
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]


@pytest.fixture
def filled(remote: Project) -> Project:
    """A primary, two versions of German of which the second is champion, and a bundle of it."""
    remote.fill()
    return remote


def test_every_command_works_with_a_server(filled: Project, tmp_path: Path) -> None:
    name, german = filled.recipe.name, filled.embeddings
    here = ("--project", name)
    assert sum("@champion" in line for line in lingraft("ls", *here).splitlines()) == 3
    assert "promote 1 -> 2: done, asked by a test" in lingraft("show", german)
    assert "endpoint prod: https://help" in lingraft("lineage", *here)
    assert lingraft("verify", *here).count("ok ") == 5
    lingraft("pull", german, "--out", tmp_path / "out")
    original = Artifact.load(filled.folder / "embeddings-2.0", Kind.EMBEDDINGS)
    assert Artifact.load(tmp_path / "out", Kind.EMBEDDINGS).manifest == original.manifest
    with pytest.raises(PromotionError, match=r"version 1 of .* is not promoted"):
        lingraft("promote", german, 1, "--dry-run")
    lingraft("rollback", german, "--by", "alice")
    assert filled.champion(german) == 1
    lingraft("promote", german, 2)
    assert filled.champion(german) == 2
    loser = filled.register_embeddings(original.manifest.aligned_with or "", 3.0, masked=0.1)
    assert lingraft("gc", *here, "--days", 0, "--yes").startswith(f"deleted version {loser} of '{german}'")


def test_the_pages_of_a_version_have_card_tags_signature_inputs_and_recipe(filled: Project, server: int) -> None:
    name = filled.embeddings
    with httpx.Client(base_url=f"http://localhost:{server}/ajax-api/2.0/mlflow", trust_env=False) as pages:

        def page(path: str, /, **asked: str) -> Any:
            return pages.get(path, params=asked).raise_for_status()

        model = page("registered-models/get", name=name).json()["registered_model"]
        assert model["description"].startswith("Token embeddings of one language")
        assert {each["alias"]: each["version"] for each in model["aliases"]} == {"champion": "2"}
        version = page("model-versions/get", name=name, version="2").json()["model_version"]
        tags = {each["key"]: each["value"] for each in version["tags"]}
        assert version["description"].startswith(f"# {name}\n\n|")
        assert {"fingerprint", "aligned_with", "tokenizer_hash", "system", "depth", "language", "data.blocks"} <= {
            *tags
        }
        assert {"cost_flops", "cost_gpu_hours", "parity.topic"} <= {*tags}
        files = f"logged-models/{version['source'].removeprefix('models:/')}/artifacts/files"
        described = yaml.safe_load(page(files, artifact_file_path="MLmodel").text)
        assert '"name": "tokens"' in described["signature"]["inputs"]
        assert '"name": "vectors"' in described["signature"]["outputs"]
        run = page("runs/get", run_id=version["run_id"]).json()["run"]
        [blocks] = run["inputs"]["dataset_inputs"]
        assert (blocks["dataset"]["name"], blocks["dataset"]["digest"]) == ("blocks-de", "b1")
        [made] = run["outputs"]["model_outputs"]
        assert f"models:/{made['model_id']}" == version["source"]
        [recipe] = page("artifacts/list", run_id=version["run_id"], path="recipes").json()["files"]
        assert recipe["path"] == f"recipes/{name}.json"
