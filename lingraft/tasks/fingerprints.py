"""Fingerprints of examples outside of artifacts, made without reading an example."""

import uuid
from collections.abc import Sequence
from pathlib import Path

from lingraft.artifacts.files import sha256_of
from lingraft.config.tasks import BeirFolder, ParallelDocuments, ParallelLines, Task, TaskDataset, TaskFile, TestData
from lingraft.data.bilingual_dictionary import hash_parallel
from lingraft.data.splits import SplitName
from lingraft.errors import TextError


def marks_of(task: Task, splits: Sequence[SplitName], language: str) -> dict[str, str]:
    """Return a fingerprint of each split that the task takes from a file or a dataset: equal ones, equal examples.

    A dataset on the hub is known by its commit. Where the hub cannot be asked, the fingerprint is like no other, so
    that results of those examples are made again.
    """
    sources = {split: getattr(task, split) for split in splits}
    return {split: _mark(source, language) for split, source in sources.items() if source is not None}


def _mark(source: TestData, language: str) -> str:
    match source:
        case TaskFile():
            return _of_file(Path(source.path.replace("{language}", language)))
        case TaskDataset():
            return _of_dataset(source, language)
        case ParallelLines():
            return hash_parallel(source.in_language(language))["translations"]
        case ParallelDocuments():
            return "parallel documents"  # of the text, which has a fingerprint of its own
        case BeirFolder():
            corpus = [_of_file(Path(source.source_corpus))] if source.source_corpus else []
            return " ".join([*corpus, _of_folder(source.in_language(language))])


def _of_dataset(source: TaskDataset, language: str) -> str:
    name = source.dataset.replace("{language}", language)
    configuration = (source.configuration or "").replace("{language}", language)
    content = _of_folder(Path(name)) if Path(name).is_dir() else _commit(name, source.revision)
    return f"{name} {configuration} {source.split} {content}"


def _of_file(path: Path) -> str:
    if not path.is_file():
        raise TextError(f"{path} is not there, and a task takes its examples from it. Correct the recipe's path.")
    return sha256_of(path)


def _of_folder(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return " ".join(f"{path.relative_to(folder)} {sha256_of(path)}" for path in files)


def _commit(dataset: str, revision: str | None) -> str:
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        return str(HfApi().dataset_info(dataset, revision=revision).sha)
    except HFValidationError as error:
        raise TextError(
            f"{dataset!r} is neither a folder nor the id of a dataset: {error} Correct the recipe's `dataset`."
        ) from error
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError, httpx2.HTTPError):
        return uuid.uuid4().hex
