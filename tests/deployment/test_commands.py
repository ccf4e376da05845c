"""The commands of a pod run as they stand in its manifest, as processes: a bundle comes, is served, and is followed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import bundle_name
from lingraft.deployment.deployment import validate_deployment
from lingraft.deployment.inference_service import inference_service
from lingraft.serving.client import run_server
from tests.fixtures.forked import start_lingraft
from tests.serving import conftest as serving
from tests.serving.asking import infer, inputs
from tests.serving.publishing import conftest as bundles
from tests.serving.publishing.asked import TASK, texts
from tests.tiny import Tiny
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet, sqlite_store

pytestmark = [quiet, pytest.mark.integration]
tiny, started, turkish = serving.tiny, bundles.started, bundles.turkish


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with sqlite_store(tmp_path):
        yield Project.begin("demo", tmp_path)


def promoted(project: Project, bundle: Path) -> None:
    name = bundle_name(project.recipe, TASK)
    project.promote(name, project.register(name, Artifact.load(bundle, Kind.BUNDLE)))


def arguments_of(container: dict[str, Any], volumes: Path) -> list[str]:
    """What the kubelet would run `lingraft` with, with the pod's volumes in a folder of ours."""
    words = [*container["command"], *container["args"]]
    for mount in ("/bundles", "/published"):
        words = [word.replace(mount, f"{volumes}{mount}", 1) if mount in word else word for word in words]
    assert words[0] == "lingraft"
    return words[1:]


def test_a_pod_brings_the_champion_serves_it_and_takes_up_the_next(
    project: Project, tiny: Tiny, started: Path, turkish: Path, tmp_path: Path
) -> None:
    project.promote(project.primary, project.register(project.primary, Artifact.load(tiny.primary, Kind.PRIMARY)))
    project.accept(tiny.embeddings["de"])
    project.accept(tiny.embeddings["tr"])
    promoted(project, started)
    pod = inference_service(validate_deployment(models=["models:/demo-bundle-topic@champion"], follow=True))["spec"][
        "predictor"
    ]
    pull, follow = (arguments_of(each, tmp_path) for each in pod["initContainers"])
    (tmp_path / "published").mkdir()  # a volume
    pulling = start_lingraft(pull, log=tmp_path / "pull.log")
    assert pulling.ends() == 0, pulling.said
    command, bundle, *flags = arguments_of(pod["containers"][0], tmp_path)
    settings = [flag for flag in flags if not flag.startswith(("--port", "--grpc-port"))]
    assert command == "serve"
    with run_server([Path(bundle)], settings=("--no-detect", *settings)) as server:
        assert ask(server.url, "tr") == 400
        with start_lingraft([*follow, "--every=0.5"], log=tmp_path / "follow.log") as following:
            promoted(project, turkish)
            following.wait_until(lambda: ask(server.url, "tr") == 200, pause_s=0.05)
            assert ask(server.url, "de") == 200


def ask(url: str, language: str) -> int:
    """Status of an answer."""
    asked = inputs([language], text=texts(language))
    return httpx.post(url + infer(TASK), json=asked, timeout=60, trust_env=False).status_code
