"""A bundle that was damaged in the registry's store is neither brought nor served."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft import tracking
from lingraft.artifacts.artifact import Kind
from lingraft.cli import app
from lingraft.config.recipe import Recipe
from lingraft.errors import ArtifactError
from lingraft.serving.served_bundles import ServedBundles
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


def test_a_bundle_is_neither_brought_nor_served_while_it_is_damaged_in_the_store(stored: Path, tmp_path: Path) -> None:
    for name in ("body.safetensors", "body.onnx", "de/table.safetensors"):
        whole = (stored / name).read_bytes()
        (stored / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ArtifactError, match=rf"{name} was truncated or edited"):
            pull(tmp_path / "bundle")
        # Whoever goes past `pull` and copies the store's files is refused by what the server opens them with.
        shutil.copytree(stored, tmp_path / name, ignore=shutil.ignore_patterns("MLmodel"))
        with pytest.raises(ArtifactError, match=rf"{name} was truncated or edited"):
            ServedBundles.load([tmp_path / name])
        (stored / name).unlink()
        with pytest.raises(ArtifactError, match=rf"lacks \['{name}'\]"):
            pull(tmp_path / "bundle")
        assert not (tmp_path / "bundle").exists()
        (stored / name).write_bytes(whole)
    pull(tmp_path / "bundle")
    assert ServedBundles.load([tmp_path / "bundle"])["topic"].languages.keys() == {"en", "de", "tr"}
