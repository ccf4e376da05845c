"""Test examples of a task in the languages that are exported."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lingraft.artifact import Artifact, Kind
from lingraft.errors import ExportError
from lingraft.models import load_embeddings, load_task
from lingraft.task_config import Task
from lingraft.tasks.loading import load_examples


def examples_of(task: Path | None, embeddings: Sequence[Path], texts: Sequence[Path]) -> dict[str, list[Any]]:
    """Test examples by language: the source's and each target's that the task covers.

    Args:
        task: says where its examples come from.
        embeddings: of the target languages.
        texts: of the languages, for a task of kind 'documents', whose examples they are.

    Raises:
        ExportError: there is no task, or a text for a task whose examples are elsewhere, or two of one language.
        TextError: examples cannot be read.
        ArtifactError: an input is not what it should be.
    """
    if task is None:
        raise ExportError("there is no task, so there are no examples to judge. Give --task, or leave --judge out.")
    model = load_task(task)
    by_language = _by_language(texts)
    if by_language and model.settings.kind != "documents":
        raise ExportError(f"task {model.name!r} has examples of its own, and no use for text. Leave --text out.")
    targets = (load_embeddings(folder).language for folder in embeddings)
    wanted = _judged(model.settings, [str(model.manifest.language), *targets], by_language)
    return {each: load_examples(model.settings, "test", each, by_language.get(each)) for each in wanted}


def _judged(task: Task, languages: Sequence[str], texts: dict[str, Artifact]) -> Iterable[str]:
    """Those the task covers; of documents those that there is text of."""
    if task.kind == "documents":
        if not texts:
            raise ExportError(f"task {task.name!r} takes its examples from text. Give --text once a language.")
        return texts
    return (language for language in languages if task.covers(language))


def _by_language(texts: Sequence[Path]) -> dict[str, Artifact]:
    found = [Artifact.load(folder, Kind.TEXT) for folder in texts]
    languages = [str(one.manifest.language) for one in found]
    if len(set(languages)) < len(languages):
        raise ExportError(f"texts are of {languages}: give one for each language.")
    return dict(zip(languages, found, strict=True))
