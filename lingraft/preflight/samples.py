"""A sample of one language's text, read within a bounded time, and what can be said of the text by it."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from lingraft.documents import SAMPLED
from lingraft.errors import LingraftError
from lingraft.prepared import Preparation, Prepared
from lingraft.splits import SPLITS, SplitName
from lingraft.text import source_documents
from lingraft.text_config import HuggingFace, Split, TextSource

CHARACTERS = 1 << 22
"""Of a language, that are read at most."""
_ALPHABET_CHARACTERS, _ALPHABET_SHARE = 1_000_000, 0.9995


@dataclass
class TextSample:
    """Documents of a language as they would be split, and the errors in place of those that cannot be read."""

    language: str
    errors: list[str] = field(default_factory=list)
    texts: dict[SplitName, list[str]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    characters: Counter[SplitName] = field(default_factory=Counter)
    labels: dict[SplitName, Counter[str]] = field(default_factory=lambda: {split: Counter() for split in SPLITS})
    first_places: dict[tuple[SplitName, str], str] = field(default_factory=dict)
    """File and line of the first document of a split with a label."""
    unlabelled: list[str] = field(default_factory=list)
    """Files and lines of documents without a label."""
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def whole(self) -> bool:
        """Whether all of the text was read."""
        return not self.notes[SAMPLED]

    @property
    def documents(self) -> int:
        """How many were read that are not empty."""
        return sum(map(len, self.texts.values()))

    @property
    def has_labels(self) -> bool:
        """Whether any document has a label."""
        return any(self.labels.values())

    def alphabet(self) -> int:
        """How many characters cover 99.95% of the training text's first million."""
        counts: Counter[str] = Counter()
        for text in self.texts["train"]:
            counts.update(text)
            if counts.total() > _ALPHABET_CHARACTERS:
                break
        rest = (1 - _ALPHABET_SHARE) * counts.total()
        rare = 0
        for number, (_, count) in enumerate(reversed(counts.most_common())):
            rare += count
            if rare > rest:
                return len(counts) - number
        return 0

    def problems(self) -> Iterator[str]:
        """What could not be read, or that there is nothing to read."""
        yield from (f"{self.language}: {error}" for error in self.errors)
        if not self.errors and not self.documents:
            yield f"{self.language}: the text holds no document that is not empty. Give text in this language."

    def add(self, document: Prepared, place: str) -> None:
        """Count a document.

        Args:
            document: as it would be written.
            place: file and line.
        """
        split, label = document.split, document.label
        self.texts[split].append(json.loads(document.line)["text"])
        self.characters[split] += document.characters
        if label is None:
            self.unlabelled.append(place)
        else:
            self.labels[split][label] += 1
            self.first_places.setdefault((split, label), place)


def take(source: TextSource, division: Split, language: str) -> TextSample:
    """Read a sample of a language's text, cleaned and split as a recipe says.

    Duplicates are not looked for. A dataset is streamed, whatever the recipe says, so that it is not downloaded whole.

    Args:
        source: the recipe's [text].
        division: the recipe's [split].
        language: one of the recipe's.
    """
    sample, prepare = TextSample(language), Preparation(division, source.cleaning)
    for found in source_documents(_streamed(source), language, sample.notes, Counter(), CHARACTERS):
        if isinstance(found, LingraftError):
            sample.errors.append(str(found))
            continue
        for document in prepare([found]).documents:
            sample.add(document, found.place)
    return sample


def _streamed(source: TextSource) -> TextSource:
    return source.model_copy(update={"streaming": True}) if isinstance(source, HuggingFace) else source
