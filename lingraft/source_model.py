"""The model that a project begins with: found, imported once, and kept in the user's cache.

A hub id or a folder becomes a primary (and, of an embedding model, a task of kind 'retrieval') under a key of its
content, so that every recipe, command and language that names the same model reads the same artifacts.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pydantic

from lingraft.artifacts.files import atomic_folder, cache_folder
from lingraft.artifacts.locks import folder_lock
from lingraft.artifacts.manifest import MANIFEST, Kind, artifact_fingerprint, read_manifest
from lingraft.config.recipe import Recipe
from lingraft.config.source import Source
from lingraft.console import never_silent, say
from lingraft.errors import RecipeError

if TYPE_CHECKING:
    from lingraft.tracking.versions import Version

_REGISTERED = "models:/"
_PRIMARY, _TASK = "primary", "primary-retrieval"
_KEY_DIGITS = 16
_LAYOUT = 6
"""Version of what a cached import is; a change makes cached ones out of date."""


class SourceModel(NamedTuple):
    """Artifacts of a model."""

    primary: Path
    task: Path | None
    """Task of kind 'retrieval', where the model is an embedding model."""


def open_model(source: Source) -> SourceModel:
    """Return the artifacts of a model, importing it if that was not done before.

    Args:
        source: source of a recipe, which names the model: a hub id, a folder of its files, a primary of ours, or a
            registered one.

    Raises:
        RecipeError: it names no model.
        CheckpointError: the model cannot be had, or is none that a primary can be made from.
        TokenizerError: its tokenizer cannot be kept exactly.
        NotRegisteredError: there is no such registered model, or it is no primary.
        MissingExtraError: the extra 'huggingface' is not installed.
        ArtifactError: the cache cannot be written.
    """
    if source.model is None:
        raise RecipeError("the recipe's [source] names no model. Set source.model, or pretrain a primary.")
    if source.model.startswith(_REGISTERED):
        return _registered(source.model)
    folder = Path(source.model).expanduser()
    if (folder / MANIFEST).is_file():
        beside = folder.with_name(f"{folder.name}-retrieval")
        return SourceModel(folder, beside if _belongs_to(beside, folder) else None)
    return _imported(source, source.model)


def load_recipe(path: Path) -> Recipe:
    """Read a TOML recipe; of one that names a model, complete it by what the model is.

    The shape, the vocabulary's size, the system and the adaptation follow from the model where the recipe does not say
    them. Its [encoder] may set what is training's own (`block_tokens`, `dropout`).

    Raises:
        RecipeError: no such file, not TOML, an unknown key or an impossible value, or an [encoder] of another model.
        LingraftError: the model cannot be had; see `open_model`.
    """
    return Recipe.load(path, _with_model)


def _with_model(raw: dict[str, Any]) -> dict[str, Any]:
    given = raw.get("source")
    if not isinstance(given, dict) or not isinstance(given.get("model"), str) or "pretraining" in raw:
        return raw
    try:
        source = Source.model_validate(given)
    except pydantic.ValidationError:  # the recipe's own validation says so, with all else that is wrong
        return raw
    from lingraft.new_language.recipe import Basis, defaults

    found = defaults(Basis.of_artifact(open_model(source).primary))
    if "mini" in raw:  # over a mini-model with a head, masked tokens are learned unless the recipe says otherwise
        found = {name: value for name, value in found.items() if name != "gate"}
        found["adaptation"] = {name: value for name, value in found["adaptation"].items() if name != "pairs"}
    shared = found.keys() & raw.keys()
    sections = [name for name in shared if isinstance(found[name], dict) and isinstance(raw[name], dict)]
    return found | raw | {name: found[name] | raw[name] for name in sections}


def _belongs_to(task: Path, primary: Path) -> bool:
    if not (task / MANIFEST).is_file():
        return False
    manifest = read_manifest(task)
    return manifest.kind is Kind.TASK and manifest.aligned_with == artifact_fingerprint(primary)


def _registered(address: str) -> SourceModel:
    """Download a registered primary by `models:/NAME@ALIAS` or `models:/NAME/VERSION`, and its own retrieval task.

    Raises:
        RecipeError: it has neither an MLM head nor such a task.
    """
    from lingraft.new_language.recipe import Basis
    from lingraft.tracking import connect
    from lingraft.tracking.versions import download, require_version, versions

    def cached(version: "Version", kind: Kind) -> Path:
        out = cache_folder("models") / f"registered-{version.fingerprint[:_KEY_DIGITS]}"
        with folder_lock(out, wait=True):
            if not (out / MANIFEST).is_file():
                download(version, kind, out)
        return out

    client = connect()
    found = require_version(client, address.removeprefix(_REGISTERED))
    primary = cached(found, Kind.PRIMARY)
    own = {"kind": "task", "task": "retrieval", "task_kind": "retrieval", "aligned_with": found.fingerprint}
    tasks = [each for each in versions(client, found.tags["project"]) if own.items() <= each.tags.items()]
    task = cached(max(tasks, key=lambda each: each.is_champion), Kind.TASK) if tasks else None
    if task is None and Basis.of_artifact(primary).is_headless:
        raise RecipeError(
            f"{address} has no MLM head, and the registry has no task 'retrieval' of it: nothing says how it makes "
            "vectors. Give the artifacts of the primary and its task: --primary with --task."
        )
    return SourceModel(primary, task)


def _imported(source: Source, model: str) -> SourceModel:
    from lingraft.huggingface import require_transformers
    from lingraft.huggingface.hub import folder_hash, locate_checkpoint
    from lingraft.huggingface.importing import import_hf

    require_transformers()
    found = locate_checkpoint(model, source.revision)
    content = found.sha or folder_hash(found.folder)
    key = hashlib.sha256(repr((_LAYOUT, found.name, content, source.language)).encode()).hexdigest()[:_KEY_DIGITS]
    out = cache_folder("models") / f"{Path(found.name).name}-{key}"
    with folder_lock(out, wait=True):
        if not out.is_dir():
            say(f"{model}: importing it into {out}")
            with never_silent(f"import {model}"), atomic_folder(out) as folder:
                import_hf(model, folder / _PRIMARY, source.language, source.revision)
    task = out / _TASK
    return SourceModel(out / _PRIMARY, task if task.is_dir() else None)
