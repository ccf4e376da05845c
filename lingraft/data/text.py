"""Text artifacts: one language's documents, cleaned, and split by a hash of each document's name."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.storage import TextPath, expand_paths, explain_read_errors, parse_path
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.config.text import Files, Folder, HuggingFace, TextSource
from lingraft.console import say, with_progress
from lingraft.data.cleaning import clean_documents
from lingraft.data.documents import (
    Document,
    DocumentOrError,
    documents_or_errors,
    find_language,
    sample_documents,
    text_files,
)
from lingraft.data.huggingface import dataset_documents
from lingraft.data.libreoffice import help_documents
from lingraft.data.splits import SPLITS, SplitName, split_of
from lingraft.errors import LingraftError, TextError, raise_errors
from lingraft.tables import counted

__all__ = ["SPLITS", "SplitName", "load_split", "load_text", "prepare", "read_split", "split_of"]


LABELLING = (
    "Give labels (the key 'label' in JSONL, one sub-folder a label, or label_column of a dataset). If only targets "
    "lack them, set the task's 'languages' to those that have labels: it is judged in these, and served in all. Or "
    "remove the task from the recipe: [[tasks]] and all its [tasks....] sections."
)


_MOST_CHARACTERS = 1 << 27
_HELP_SAMPLE = 1 << 16
"""Most characters of a sample of LibreOffice's help, whose pages take seconds to parse and are known to be sound."""


@dataclass
class _TextStats:
    """Counts of documents written and dropped, for the manifest."""

    documents: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)
    labels: dict[str, Counter[str]] = field(default_factory=lambda: {split: Counter() for split in SPLITS})
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    """Counts of choices made while reading files, such as `STRAY_BLANKS`."""

    def add(self, document: Document, split: SplitName) -> None:
        self.documents[split] += 1
        self.characters[split] += len(document.text)
        if document.label is not None:
            self.labels[split][document.label] += 1

    def details(self) -> dict[str, Any]:
        found = {
            "documents": {split: self.documents[split] for split in SPLITS},
            "characters": {split: self.characters[split] for split in SPLITS},
            "labels": {split: dict(counts) for split, counts in self.labels.items()},
            "dropped": {reason: count for reason, count in self.dropped.items() if count},
        }
        notes = {note: count for note, count in self.notes.items() if count}
        return found | ({"reading": notes} if notes else {})


def prepare(recipe: Recipe, language: str, out: Path) -> Artifact:
    """Write a language's text artifact: train, dev and test.jsonl, one {name, text, label} a line."""
    recipe.require_language(language)
    stats = _TextStats()
    found = raise_errors(read_source(recipe.text, language, stats.notes, stats.dropped))
    read = with_progress(found, f"text {language}", "document")
    labelled = _require_labels(read, recipe, language)
    with artifact.create(out, Kind.TEXT) as draft:
        documents = clean_documents(labelled, recipe.text.cleaning, stats.dropped)
        digest = _write(documents, recipe, draft.folder, stats)
        _require_every_split(stats, language, recipe)
        for note, count in stats.notes.items():
            if count:
                say(f"text {language}: {count:,} {note}")
        draft.facts = {
            "language": language,
            "data_hashes": {"documents": digest},
            "recipe": recipe.model_dump(mode="json", include={"text", "split"}),
            "details": stats.details(),
        }
    return Artifact.load(out, Kind.TEXT)


def load_text(folder: Path, language: str) -> Artifact:
    """Open a text artifact of the given language."""
    found = Artifact.load(folder, Kind.TEXT)
    if found.manifest.language != language:
        raise TextError(
            f"{folder} is text in {found.manifest.language!r}, but text in {language!r} is needed here. "
            f"Give the folder that `lingraft text --language {language}` wrote."
        )
    return found


def read_split(text: Artifact, split: SplitName) -> Iterator[Document]:
    """Yield the documents of one split of a text artifact, in the order of the source."""
    with (text.folder / f"{split}.jsonl").open(encoding="utf-8") as stream:
        for line in stream:
            yield Document(**json.loads(line))


def load_split(text: Artifact, split: SplitName) -> list[Document]:
    """Return all documents of a small split, such as a task's examples; see `read_split`."""
    return list(read_split(text, split))


def read_source(
    source: TextSource,
    language: str,
    notes: Counter[str],
    dropped: Counter[str],
    characters: int | None = None,
) -> Iterator[DocumentOrError]:
    """Yield a language's documents from a recipe's source, and an error in place of each that cannot be read.

    Args:
        source: the recipe's [text].
        language: language of the recipe.
        notes: counts choices made while reading files, and `SAMPLED`.
        dropped: counts paragraphs left out, by reason.
        characters: number to read, or a little more; everything if None.
    """
    try:
        if isinstance(source, Folder | Files):
            paths = _paths(source, language)
            share = characters and -(-characters // len(paths))
            yield from documents_or_errors(paths, notes, share, source.column)
        elif isinstance(source, HuggingFace):
            yield from sample_documents(dataset_documents(source, language), notes, characters)
        else:
            yield from sample_documents(
                help_documents(language, dropped), notes, characters and min(characters, _HELP_SAMPLE)
            )
    except LingraftError as error:
        yield error


def read_training_lines(recipe: Recipe, language: str) -> Iterator[str]:
    """Yield the lines of a language's training documents as a text artifact has them.

    Of more than a hundred million characters, those that come first are read.
    """
    found = sample_documents(read_source(recipe.text, language, Counter(), Counter()), Counter(), _MOST_CHARACTERS)
    documents = with_progress(raise_errors(found), f"read text {language}", "document")
    for document in clean_documents(documents, recipe.text.cleaning, Counter()):
        if split_of(document.name, recipe.split) == "train":
            yield from document.text.split("\n")


def content_hashes(source: TextSource, language: str) -> dict[str, dict[str, str]]:
    """Return place, name and SHA-256 of each file that a language's text is read from; nothing of a dataset."""
    places = _paths(source, language) if isinstance(source, Folder | Files) else []
    found = {}
    for place, path in enumerate(places, start=1):
        for number, file in enumerate(text_files(path), start=1):
            with explain_read_errors(file):
                found[f"{place}-{number}"] = {PurePosixPath(str(file)).name: sha256_of(file)}
    return found


def _paths(source: Folder | Files, language: str) -> list[TextPath]:
    if isinstance(source, Folder):
        return [find_language(parse_path(source.path), language)]
    if language not in source.paths:
        raise TextError(f"[text] names files for {sorted(source.paths)}, but none for {language!r}. Add it to 'paths'.")
    found = [place for name in source.paths[language] for place in expand_paths(name)]
    if twice := [str(place) for place, times in Counter(found).items() if times > 1]:
        raise TextError(
            f"'paths' of {language!r} name {twice[0]} more than once, by itself or by patterns. Name it once."
        )
    return found


def labelling_tasks(recipe: Recipe, language: str) -> list[Task]:
    """Return the tasks of kind 'documents' for which each document of a language must have a label.

    The source's documents are examples to learn from, those of other languages examples to be judged on.
    """
    needed = (task for task in recipe.tasks if language == recipe.source.language or task.covers(language))
    return [task for task in needed if task.reads_text]


def _require_labels(documents: Iterator[Document], recipe: Recipe, language: str) -> Iterator[Document]:
    tasks = labelling_tasks(recipe, language)
    for document in documents:
        if tasks and document.text and document.label is None:
            raise TextError(
                f"{document.place} has no label, and the recipe's task {tasks[0].name!r} needs one for each document. "
                f"{LABELLING}"
            )
        yield document


def _write(documents: Iterator[Document], recipe: Recipe, folder: Path, stats: _TextStats) -> str:
    """Write each document to its split; return the SHA-256 of all of them."""
    digest = hashlib.sha256()
    encoded = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode
    with contextlib.ExitStack() as stack:
        streams = {split: stack.enter_context((folder / f"{split}.jsonl").open("wb")) for split in SPLITS}
        for document in documents:
            record = {"name": document.name, "text": document.text, "label": document.label}
            line = encoded(record).encode() + b"\n"
            split = split_of(document.name, recipe.split)
            digest.update(line)
            streams[split].write(line)
            stats.add(document, split)
    return digest.hexdigest()


def _require_every_split(stats: _TextStats, language: str, recipe: Recipe) -> None:
    total = stats.documents.total()
    if not total:
        raise TextError(f"the source ({recipe.text}) holds no text in language {language!r}. Bring text for it.")
    if message := empty_splits_error(stats.documents, language, recipe):
        raise TextError(message)


def empty_splits_error(documents: Mapping[SplitName, int] | Counter[str], language: str, recipe: Recipe) -> str | None:
    """Return an error message if the numbers of documents leave a split empty; else None."""
    needed = SPLITS if recipe.has_masked_tokens else SPLITS[:1]  # text without masked tokens is only trained on
    missing = [split for split in needed if not documents[split]]
    if not missing:
        return None
    count = sum(documents.values())
    return (
        f"{counted(count, 'document')} in language {language!r} {'leaves' if count == 1 else 'leave'} "
        f"{' and '.join(missing)} empty "
        f"(dev_share {recipe.split.dev_share}, test_share {recipe.split.test_share}). "
        "Give more documents, or raise the shares in [split]."
    )
