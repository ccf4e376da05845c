"""Test examples of a task, or test blocks of a primary, on which an export's metric is measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.data.blocks import open_split
from lingraft.errors import ExportError
from lingraft.model.loading import load_embeddings
from lingraft.tasks.loading import load_examples
from lingraft.tasks.model import load_task


def evaluation_examples(
    task: Path | None, embeddings: Sequence[Path], texts: Sequence[Path], blocks: Sequence[Path] = ()
) -> dict[str, Any]:
    """Load test examples by language: of the source and all target languages that the task covers.

    Without `task` the primary itself is judged, on `blocks`; a task of kind 'documents' is judged on `texts`.

    Returns:
        Rows of the task, or blocks (N, T) of token ids for a primary, by language.

    Raises:
        ExportError: texts or blocks do not fit the task, are missing, or two have the same language.
        TextError: examples cannot be read.
        ArtifactError: an input is not what it should be.
    """
    blocks_by_language = _by_language(blocks, Kind.BLOCKS)
    if task is None:
        if texts or not blocks_by_language:
            raise ExportError("a primary is judged on blocks. Give --blocks once a language, and no --text.")
        return {language: open_split(one, "test").all() for language, one in blocks_by_language.items()}
    model = load_task(task)
    settings = model.settings
    texts_by_language = _by_language(texts, Kind.TEXT)
    if blocks_by_language or (texts_by_language and settings.kind != "documents"):
        raise ExportError(f"task {model.name!r} is judged on its own examples. Leave --blocks and --text out.")
    if settings.kind == "documents":
        if not texts_by_language:
            raise ExportError(f"task {model.name!r} takes its examples from text. Give --text once a language.")
        return {tag: load_examples(settings, "test", tag, text) for tag, text in texts_by_language.items()}
    tags = [str(model.manifest.language), *(load_embeddings(folder).language for folder in embeddings)]
    return {tag: load_examples(settings, "test", tag, None) for tag in tags if settings.covers(tag)}


def _by_language(folders: Sequence[Path], kind: Kind) -> dict[str, Artifact]:
    found = [Artifact.load(folder, kind) for folder in folders]
    languages = [str(one.manifest.language) for one in found]
    if len(set(languages)) < len(languages):
        raise ExportError(f"{kind} are of {languages}: give one for each language.")
    return dict(zip(languages, found, strict=True))
