"""Edited manifests: an edit changes the fingerprint or is refused, and whatever opens such an artifact says why.

Every place of real manifests is edited, one at a time: removed, renamed, reordered, replaced by values of other types.
"""

import copy
import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, NOT_FINGERPRINTED, Kind, read_manifest
from lingraft.bundle.format import bundle_languages
from lingraft.bundle.language_part import language_fingerprint
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError, LingraftError
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.serving.bundle import Bundle
from lingraft.tasks.finetuned import load_task
from lingraft.tracking.tags import description_of
from tests.serving import shared
from tests.tiny import Pieces, Tiny

Place = tuple[str | int, ...]
Change = Callable[[Any, Any], object]
OTHERS: tuple[Any, ...] = (None, "x", "../x", -1, 0, 2.5, True, [], {}, [None], {"x": {}})
KINDS = ("primary", "task", "embeddings", "tokenizer", "bundle")


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        yield (*at, key)
        yield from places(held, (*at, key))


def changes(before: Any, key: str | int) -> Iterator[tuple[str, Change]]:
    def put(value: Any) -> Change:
        return lambda holder, key: holder.__setitem__(key, value)

    yield "removed", lambda holder, key: holder.pop(key)
    if isinstance(key, str):
        yield "renamed", lambda holder, key: holder.__setitem__(f"{key}x", holder.pop(key))
    if isinstance(before, list):
        yield "rotated", put([*before[1:], *before[:1]])
        yield "longer", put([*before, *before[:1]])
    if isinstance(before, str):
        yield "backwards", put(before[::-1])
    if isinstance(before, int | float) and not isinstance(before, bool):
        yield "more", put(before + 1)
        yield "as text", put(str(before))
    for other in OTHERS:
        yield f"{other!r}", put(other)


def holder_of(manifest: Any, above: list[str | int]) -> Any:
    return functools.reduce(lambda holder, step: holder[step], above, manifest)


def forgeries(manifest: dict[str, Any], count: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """All of them, or about a number that lie evenly among them."""
    edits = [
        (above, key, done, change)
        for *above, key in places(manifest)
        for done, change in changes(holder_of(manifest, above)[key], key)
    ]
    for above, key, done, change in edits[:: len(edits) // count if count else 1]:
        forged = copy.deepcopy(manifest)
        change(holder_of(forged, above), key)
        yield f"{'.'.join(map(str, (*above, key)))}: {done}", forged


def linked(source: Path, to: Path) -> Path:
    for path in source.rglob("*"):
        if path.is_file() and path.name != MANIFEST:
            (to / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, to / path.relative_to(source))
    return to


def source_of(kind: str) -> Path:
    tiny = Tiny.shared()
    return {
        "primary": lambda: tiny.primary,
        "task": lambda: tiny.task,
        "embeddings": lambda: tiny.embeddings["de"],
        "tokenizer": lambda: Pieces.shared().tokenizers["de"],
        "bundle": shared.bundle,
    }[kind]()


def open_all(kind: str, folder: Path) -> None:
    loaders = {"primary": load_primary, "task": load_task, "embeddings": load_embeddings, "tokenizer": Tokenizer.load}
    if kind == "bundle":
        Bundle.load(folder).run_self_test()
        manifest = read_manifest(folder)
        for language in bundle_languages(manifest):
            language_fingerprint(manifest, language)
    else:
        loaders[kind](folder)
    description_of(Artifact.load(folder, Kind(kind)), {})


@pytest.mark.parametrize("count", [200, pytest.param(None, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_edit_of_a_manifest_changes_the_fingerprint_or_is_refused(
    kind: str, count: int | None, tmp_path: Path
) -> None:
    whole = json.loads((source_of(kind) / MANIFEST).read_bytes())
    expected, not_seen = read_manifest(source_of(kind)).fingerprint, []
    for what, forged in forgeries(whole, count):
        (tmp_path / MANIFEST).write_text(json.dumps(forged))
        try:
            found = read_manifest(tmp_path)
        except ArtifactError:
            continue
        if found.fingerprint == expected and forged != whole:
            not_seen.append(what)
    assert not_seen or count
    assert {what.split(":")[0].split(".")[0] for what in not_seen} <= {*NOT_FINGERPRINTED}


@pytest.mark.parametrize("count", [12, pytest.param(None, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_opens_an_edited_artifact_says_what_is_wrong(kind: str, count: int | None, tmp_path: Path) -> None:
    source = source_of(kind)
    folder, whole = linked(source, tmp_path / "forged"), json.loads((source / MANIFEST).read_bytes())
    refused = 0
    for what, forged in forgeries(whole, count):
        (folder / MANIFEST).write_text(json.dumps(forged))
        try:
            open_all(kind, folder)
        except LingraftError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{what} is not refused, but ends in {error!r}") from error
    assert refused > 3
