"""What is judged in the languages that are exported: test examples of a task, or test blocks of a primary."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.config.tasks import Task
from lingraft.data.blocks import open_split
from lingraft.errors import ExportError
from lingraft.model.loading import load_embeddings
from lingraft.tasks.loading import load_examples
from lingraft.tasks.model import load_task


def evaluation_examples(
    task: Path | None, embeddings: Sequence[Path], texts: Sequence[Path], blocks: Sequence[Path] = ()
) -> dict[str, Any]:
    """Test examples by language: the source's and each target's that the task covers; blocks (N, T) of a primary.

    Args:
        task: says where its examples come from; None: the primary itself is judged, on masked tokens.
        embeddings: of the target languages.
        texts: of the languages, for a task of kind 'documents', whose examples they are.
        blocks: of the languages, for a primary.

    Raises:
        ExportError: a text or blocks are given that what is judged has no use for, two of one language, or none.
        TextError: examples cannot be read.
        ArtifactError: an input is not what it should be.
    """
    cut = _by_language(blocks, Kind.BLOCKS)
    if task is None:
        if texts or not cut:
            raise ExportError("a primary is judged on blocks. Give --blocks once a language, and no --text.")
        return {language: open_split(one, "test").all() for language, one in cut.items()}
    model, by_language = load_task(task), _by_language(texts, Kind.TEXT)
    if cut or (by_language and model.settings.kind != "documents"):
        raise ExportError(f"task {model.name!r} is judged on its own examples. Leave --blocks and --text out.")
    targets = (load_embeddings(folder).language for folder in embeddings)
    wanted = _evaluated_languages(model.settings, [str(model.manifest.language), *targets], by_language)
    return {each: load_examples(model.settings, "test", each, by_language.get(each)) for each in wanted}


def _evaluated_languages(task: Task, languages: Sequence[str], texts: dict[str, Artifact]) -> Iterable[str]:
    """Those the task covers; of documents those that there is text of."""
    if task.kind == "documents":
        if not texts:
            raise ExportError(f"task {task.name!r} takes its examples from text. Give --text once a language.")
        return texts
    return (language for language in languages if task.covers(language))


def _by_language(folders: Sequence[Path], kind: Kind) -> dict[str, Artifact]:
    found = [Artifact.load(folder, kind) for folder in folders]
    languages = [str(one.manifest.language) for one in found]
    if len(set(languages)) < len(languages):
        raise ExportError(f"{kind} are of {languages}: give one for each language.")
    return dict(zip(languages, found, strict=True))
