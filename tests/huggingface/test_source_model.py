"""A recipe that names a model: it is imported once, and says what the recipe leaves out."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, artifact_fingerprint
from lingraft.config.recipe import Recipe
from lingraft.config.source import Source
from lingraft.config.systems import System
from lingraft.errors import LingraftError, RecipeError
from lingraft.huggingface import hub
from lingraft.huggingface.export import export_hf
from lingraft.model.loading import load_primary
from lingraft.source_model import load_recipe, open_model
from tests.huggingface.checkpoints import Made
from tests.huggingface.embedding_models import make_embedding_model
from tests.tracking_stores import quiet, sqlite_store

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
RECIPE = """
name = "search"
targets = ["de"]
{top}

[source]
model = "{model}"

[text]
kind = "folder"
path = "text"
{more}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(folder: Path, model: Any, more: str = "", top: str = "") -> Path:
    file = folder / "recipe.toml"
    file.write_text(RECIPE.format(model=model, more=more, top=top), encoding="utf-8")
    return file


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_model_is_imported_once_and_its_content_decides(
    checkpoints: dict[str, Made], cache: Path, tmp_path: Path
) -> None:
    source = Source(model=str(checkpoints["roberta"].folder))
    first = open_model(source)
    before = files(cache)
    assert open_model(source) == first
    assert files(cache) == before
    assert Artifact.load(first.primary, Kind.PRIMARY).manifest.language == "en"
    assert first.task is None
    assert open_model(Source(model=source.model, language="de")).primary != first.primary
    assert open_model(Source(model=str(checkpoints["bert"].folder))).primary != first.primary
    assert open_model(Source(model=str(first.primary))).primary == first.primary


def test_an_embedding_model_brings_its_task(tmp_path: Path) -> None:
    make_embedding_model(tmp_path)
    found = open_model(Source(model=str(tmp_path / "model")))
    assert found.task
    task = Artifact.load(found.task, Kind.TASK).manifest
    assert task.aligned_with == load_primary(found.primary).fingerprint
    assert open_model(Source(model=str(found.primary))) == found


def test_a_model_needs_no_encoder_and_no_pretraining_in_a_recipe(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, checkpoints["roberta"].folder))
    primary = open_model(recipe.source).primary
    shape = load_primary(primary).encoder.shape
    assert (recipe.encoder, recipe.pretraining, recipe.system) == (shape, None, System.BL_BASE)
    assert load_primary(primary, recipe.primary_shape).encoder.shape == shape
    assert Recipe.parse(recipe.to_json()) == recipe


def test_block_length_and_dropout_are_settings_of_training(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    more = "[encoder]\nblock_tokens = 16\ndropout = 0.25"
    recipe = load_recipe(written(tmp_path, checkpoints["roberta"].folder, more))
    primary = open_model(recipe.source).primary
    longest = load_primary(primary).encoder.shape.block_tokens
    found = load_primary(primary, recipe.primary_shape).encoder
    assert (recipe.encoder.block_tokens, found.shape.block_tokens) == (16, longest)
    assert {found.shape.dropout, found.layers[0].dropout} == {0.25}


@pytest.mark.parametrize("more", ["[encoder]\nwidth = 64", "[encoder]\nblock_tokens = 100_000"])
def test_another_encoder_is_refused(checkpoints: dict[str, Made], tmp_path: Path, more: str) -> None:
    recipe = load_recipe(written(tmp_path, checkpoints["roberta"].folder, more))
    primary = open_model(recipe.source).primary
    with pytest.raises(RecipeError, match=r"the recipe's \[encoder\] is not that of the primary in"):
        load_primary(primary, recipe.primary_shape)


def test_a_model_or_an_encoder_to_pretrain_is_named_and_not_both(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    tiny = Recipe.load(Path(__file__).parents[1] / "tiny.toml").model_dump(mode="json")
    with pytest.raises(RecipeError, match=r"there is both. Name a pretrained model .* or give \[encoder\]"):
        Recipe.parse(tiny | {"source": {"model": str(checkpoints["roberta"].folder)}})
    with pytest.raises(RecipeError, match=r"there is neither. Name a pretrained model"):
        Recipe.parse({name: value for name, value in tiny.items() if name != "pretraining"})
    with pytest.raises(RecipeError, match="revision 'v2' is that of a model, and none is named"):
        Recipe.parse(tiny | {"source": {"language": "en", "revision": "v2"}})


def test_a_tag_stands_for_the_language() -> None:
    assert Recipe.load(Path(__file__).parents[1] / "tiny.toml").source == Source(language="en")


def test_the_package_of_a_model_stands_for_its_hub_id_if_its_weights_are_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = open_model(Source(model=MINILM))
    assert f"{MINILM}: importing it into" in (said := capsys.readouterr().err)
    assert "site-packages" not in said
    assert found.task
    assert load_primary(found.primary).encoder.shape.layers == 6
    package, weights = hub._PACKAGES[MINILM]
    origin = Artifact.load(found.primary, Kind.PRIMARY).manifest.record["origin"]
    place = f"{package} {version(package)}"
    assert origin.items() >= {"name": MINILM, "revision": None, "package": place, "sha": weights}.items()
    export_hf(found.primary, tmp_path / "hf")
    card = (tmp_path / "hf" / "README.md").read_text(encoding="utf-8")
    assert f"base_model: {MINILM}\n" in card
    assert f"imported from `{MINILM}`, package `{place}`, SHA-256 of its weights `{weights}`; licence:" in card
    monkeypatch.setitem(hub._PACKAGES, MINILM, (package, "0" * 64))
    with pytest.raises(LingraftError, match=r"is not that of .*: its SHA-256 must be 0{64}"):
        open_model(Source(model=MINILM))


@quiet
def test_a_registered_embedding_model_comes_with_its_task_and_not_without(tmp_path: Path) -> None:
    make_embedding_model(tmp_path)
    made = open_model(Source(model=str(tmp_path / "model")))
    registered = Source(model="models:/tiny-primary@champion")
    recipe = Recipe.load(Path(__file__).parents[1] / "tiny.toml")
    with sqlite_store(tmp_path), tracking.stage(tracking.open_run(recipe, "source"), "register") as stage:
        tracking.register("tiny-primary", made.primary, Kind.PRIMARY, stage, {}, (tracking.CHAMPION,))
        with pytest.raises(RecipeError, match=r"no task 'retrieval' of it.* --primary with --task"):
            open_model(registered)
        assert made.task
        tracking.register("tiny-task-retrieval", made.task, Kind.TASK, stage, {})
        found = open_model(registered)
    assert found.task
    assert artifact_fingerprint(found.task) == artifact_fingerprint(made.task)
    assert artifact_fingerprint(found.primary) == artifact_fingerprint(made.primary)


def test_a_registered_model_is_named_by_alias_or_number() -> None:
    from lingraft.tracking.versions import require_version

    with pytest.raises(LingraftError, match=r"models:/primary names no version .* Give models:/NAME@champion"):
        require_version(None, "primary")  # type: ignore[arg-type]
