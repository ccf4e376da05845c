"""The same over HTTP: what every command does with a server, and what MLflow's pages ask that server for."""

from typing import Any

import httpx
import pytest
import yaml

from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]


@pytest.fixture
def filled(remote: Project) -> Project:
    """A primary, two versions of German of which the second is champion, and a bundle of it."""
    remote.fill()
    return remote


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
