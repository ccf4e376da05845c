"""A bundle that was damaged in the registry's store is neither brought nor served."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft import tracking
from lingraft.artifact import Kind
from lingraft.cli import app
from lingraft.config import Recipe
from lingraft.errors import ArtifactError, ServingError
from lingraft.serving.ask import ask
from lingraft.serving.questions import Question
from tests.tiny import Tiny
from tests.tracking_stores import quiet, sqlite_store

pytestmark = [quiet, pytest.mark.integration]
NAME = "served-bundle-topic"


@pytest.fixture
def stored(bundle: Path, tiny: Tiny, tmp_path: Path) -> Iterator[Path]:
    """The folder in which the store keeps a registered bundle."""
    recipe = Recipe.load(Path(__file__).parents[1] / "tiny.toml").model_copy(update={"name": "served"})
    with sqlite_store(tmp_path):
        with tracking.stage(tracking.open_run(recipe, "language"), "bundle-topic") as stage:
            tracking.register(NAME, bundle, Kind.BUNDLE, stage, {}, (tracking.CHAMPION,))
        [manifest] = tmp_path.glob("artifacts/models/*/artifacts/manifest.json")
        yield manifest.parent


def pull(out: Path) -> None:
    CliRunner().invoke(app, ["registry", "pull", NAME, "--out", str(out)], catch_exceptions=False)


def test_what_is_pulled_is_served(stored: Path, tmp_path: Path) -> None:
    pull(tmp_path / "bundle")
    [answer] = ask(tmp_path / "bundle", [Question("de", {"text": "kilo"})])
    assert answer.found


@pytest.mark.parametrize("name", ["body.safetensors", "body.onnx", "de/table.safetensors"])
def test_one_bit_that_was_turned_in_the_store_keeps_the_bundle_from_being_served(
    stored: Path, tmp_path: Path, name: str
) -> None:
    content = bytearray((stored / name).read_bytes())
    content[-1] ^= 1
    (stored / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"{name} was truncated or edited"):
        pull(tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
    # Whoever goes past `pull` and copies the store's files is refused by the server itself.
    shutil.copytree(stored, tmp_path / "copy", ignore=shutil.ignore_patterns("MLmodel"))
    with pytest.raises(ServingError, match=rf"status 1.*\n.*ArtifactError: .*{name} was truncated or edited"):
        ask(tmp_path / "copy", [])


def test_a_file_that_is_gone_from_the_store_keeps_the_bundle_from_being_served(stored: Path, tmp_path: Path) -> None:
    (stored / "de" / "table.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"lacks \['de/table.safetensors'\]"):
        pull(tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
