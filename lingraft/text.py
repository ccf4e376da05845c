"""Text of one language, read from where the recipe says and split by a hash of each document's name."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lingraft import artifact
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.documents import Document, read_documents, read_files
from lingraft.errors import TextError
from lingraft.huggingface_text import dataset_documents
from lingraft.libreoffice import help_documents
from lingraft.progress import counted
from lingraft.text_config import Files, Folder, HuggingFace, Split, TextSource

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")


@dataclass
class _Census:
    """What was written, and what was dropped and why."""

    documents: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)
    labels: dict[str, Counter[str]] = field(default_factory=lambda: {split: Counter() for split in SPLITS})
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, split: SplitName, document: Document) -> None:
        self.documents[split] += 1
        self.characters[split] += len(document.text)
        if document.label is not None:
            self.labels[split][document.label] += 1

    def details(self) -> dict[str, Any]:
        return {
            "documents": {split: self.documents[split] for split in SPLITS},
            "characters": {split: self.characters[split] for split in SPLITS},
            "labels": {split: dict(counts) for split, counts in self.labels.items()},
            "dropped": dict(self.dropped),
        }


def split_of(name: str, split: Split) -> SplitName:
    """Split that a document belongs to: its name's SHA-256 as a point in [0, 1); test lies lowest, then dev.

    The same in every language and on every machine, whatever else is in the corpus.
    """
    point = int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "big") / 2**64
    if point < split.test_share:
        return "test"
    return "dev" if point < split.test_share + split.dev_share else "train"


def prepare(recipe: Recipe, language: str, out: Path) -> Artifact:
    """Write a language's text artifact: train, dev and test.jsonl, one {name, text, label} a line.

    Raises:
        RecipeError: the recipe does not name the language.
        TextError: the text is missing, empty or damaged, a split is left without documents, or a document
            lacks the label that the recipe's task needs.
        ArtifactError: `out` holds something, or cannot be written.
    """
    recipe.require_language(language)
    census = _Census()
    documents = _documents(recipe.text, language, census.dropped)
    with artifact.create(out, Kind.TEXT) as draft:
        read = counted(_filled(documents, census.dropped), f"text {language}", "document")
        digest = _write(read, recipe, draft.folder, census)
        _require_every_split(census, language, recipe)
        draft.facts = {
            "language": language,
            "data_hashes": {"documents": digest},
            "recipe": recipe.model_dump(mode="json", include={"text", "split"}),
            "details": census.details(),
        }
    return Artifact.load(out, Kind.TEXT)


def load_text(folder: Path, language: str) -> Artifact:
    """Open the text of the language given.

    Raises:
        ArtifactError: not a text, or damaged.
        TextError: it is the text of another language.
    """
    found = Artifact.load(folder, Kind.TEXT)
    if found.manifest.language != language:
        raise TextError(
            f"{folder} is text in {found.manifest.language!r}, but text in {language!r} is needed here. "
            f"Give the folder that `lingraft text --language {language}` wrote."
        )
    return found


def load_split(text: Artifact, split: SplitName) -> list[Document]:
    """Documents of one split of a text artifact, in the order in which they were read."""
    with (text.folder / f"{split}.jsonl").open(encoding="utf-8") as stream:
        return [Document(**json.loads(line)) for line in stream]


def _documents(source: TextSource, language: str, dropped: Counter[str]) -> Iterator[Document]:
    if isinstance(source, Folder):
        return read_documents(Path(source.path), language)
    if isinstance(source, HuggingFace):
        return dataset_documents(source, language)
    if isinstance(source, Files):
        return read_files(_paths(source, language))
    return help_documents(language, dropped)


def _paths(source: Files, language: str) -> list[Path]:
    if language not in source.paths:
        raise TextError(f"[text] names files for {sorted(source.paths)}, but none for {language!r}. Add it to 'paths'.")
    return [Path(path) for path in source.paths[language]]


def _filled(documents: Iterator[Document], dropped: Counter[str]) -> Iterator[Document]:
    for document in documents:
        if document.text:
            yield document
        else:
            dropped["empty document"] += 1


def _write(documents: Iterator[Document], recipe: Recipe, folder: Path, census: _Census) -> str:
    """Write each document to its split as it is read; returns SHA-256 of all of them."""
    digest = hashlib.sha256()
    labelling = [task.name for task in recipe.tasks if task.kind == "documents"]
    with contextlib.ExitStack() as stack:
        streams = {split: stack.enter_context((folder / f"{split}.jsonl").open("wb")) for split in SPLITS}
        for document in documents:
            if labelling and document.label is None:
                raise _unlabelled(document, labelling[0])
            line = json.dumps(asdict(document), ensure_ascii=False, sort_keys=True).encode("utf-8") + b"\n"
            digest.update(line)
            split = split_of(document.name, recipe.split)
            streams[split].write(line)
            census.add(split, document)
    return digest.hexdigest()


def _unlabelled(document: Document, task: str) -> TextError:
    return TextError(
        f"document {document.name!r} has no label, and the recipe's task {task!r} needs one for each. "
        "Give labels (the key 'label' in JSONL, one sub-folder a label, or label_column of a dataset), "
        "or remove the task from the recipe."
    )


def _require_every_split(census: _Census, language: str, recipe: Recipe) -> None:
    total = census.documents.total()
    if not total:
        raise TextError(f"the source ({recipe.text}) holds no text in language {language!r}. Bring text for it.")
    if missing := [split for split in SPLITS if not census.documents[split]]:
        raise TextError(
            f"{total} documents in language {language!r} leave {' and '.join(missing)} empty "
            f"(dev_share {recipe.split.dev_share}, test_share {recipe.split.test_share}). "
            "Bring more documents or raise the shares in [split]."
        )
