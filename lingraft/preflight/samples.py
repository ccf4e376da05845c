"""A sample of one language's text, read within a bounded time, and conclusions from it about the text."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lingraft.artifacts.remote import uri_of
from lingraft.config.text import Files, Folder, HuggingFace, Split, TextSource
from lingraft.data.documents import SAMPLED
from lingraft.data.preprocessing import PreparedDocument, Preprocessor
from lingraft.data.splits import SPLITS, SplitName
from lingraft.data.text import read_source
from lingraft.errors import LingraftError

MAX_CHARACTERS = 1 << 22
"""Characters of a language that are read at most."""
SCAN_S = 30.0
"""Seconds for which the rest of a language's text is looked through at most."""
_ALPHABET_CHARACTERS, _ALPHABET_SHARE = 1_000_000, 0.9995
_COPIED_SHARE = 0.1
"""Share of a target's characters from which copies are worth a warning; names and commands are alike everywhere."""


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
    looked_through: bool = False
    """Whether errors and labels are those of all of the text, though not all of it is kept here."""

    @property
    def knows_labels(self) -> bool:
        """Whether the labels are those of all of the text."""
        return self.whole or self.looked_through

    @property
    def whole(self) -> bool:
        """Whether all of the text was read."""
        return not self.notes[SAMPLED]

    @property
    def documents(self) -> int:
        """Number of documents read that are not empty."""
        return sum(map(len, self.texts.values()))

    @property
    def counted(self) -> int:
        """Number of documents whose labels were looked at."""
        return len(self.unlabelled) + sum(counts.total() for counts in self.labels.values())

    @property
    def has_labels(self) -> bool:
        """Whether any document has a label."""
        return any(self.labels.values())

    def plain_texts(self) -> list[str]:
        """Return all documents with single spaces."""
        return [" ".join(text.split()) for texts in self.texts.values() for text in texts]

    def alphabet(self) -> int:
        """Return how many characters cover 99.95% of the training text's first million."""
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
        """Yield what could not be read, or that there is nothing to read."""
        yield from (f"{self.language}: {error}" for error in self.errors)
        if not self.errors and not self.documents:
            yield f"{self.language}: the text holds no document that is not empty. Give text in this language."

    def add(self, document: PreparedDocument, place: str) -> None:
        """Count a document, as it would be written, from a file and line."""
        self.texts[document.split].append(json.loads(document.line)["text"])
        self.characters[document.split] += document.characters
        self.count_label(document, place)

    def count_label(self, document: PreparedDocument, place: str) -> None:
        """Count the label of a document from a file and line, or that it has none."""
        split, label = document.split, document.label
        if label is None:
            self.unlabelled.append(place)
        else:
            self.labels[split][label] += 1
            self.first_places.setdefault((split, label), place)


def take_sample(source: TextSource, division: Split, language: str) -> TextSample:
    """Read a sample of a language's text, cleaned and split as a recipe says.

    Duplicates are not looked for. A dataset is streamed, whatever the recipe says, so that it is not downloaded whole.
    """
    sample, prepare = TextSample(language), Preprocessor(division, source.cleaning)
    if isinstance(source, HuggingFace):
        source = source.model_copy(update={"streaming": True})
    for found in read_source(source, language, sample.notes, Counter(), MAX_CHARACTERS):
        if isinstance(found, LingraftError):
            sample.errors.append(str(found))
            continue
        for document in prepare([found]).documents:
            sample.add(document, found.place)
    return sample


def scan_rest(sample: TextSample, source: TextSource, division: Split) -> None:
    """Look for errors and labels in all of a text of which a sample was taken, for a bounded time.

    The sample gets the errors and labels, and keeps its texts. Text in object storage and on the hub is left at the
    sample, since it would have to be downloaded.
    """
    if sample.whole or not _is_local(source):
        return
    every, prepare = TextSample(sample.language), Preprocessor(division, source.cleaning)
    end_s = time.monotonic() + SCAN_S
    for found in read_source(source, sample.language, Counter(), Counter()):
        if time.monotonic() > end_s:
            break
        if isinstance(found, LingraftError):
            every.errors.append(str(found))
            continue
        for document in prepare([found]).documents:
            every.count_label(document, found.place)
    else:
        sample.looked_through = True
    sample.errors = [*dict.fromkeys([*sample.errors, *every.errors])]
    if every.counted >= sample.counted:
        sample.labels, sample.first_places, sample.unlabelled = every.labels, every.first_places, every.unlabelled


def copy_warnings(taken: Mapping[str, TextSample], source: str) -> Iterator[str]:
    """Yield targets of whose text a tenth or more stands in the source's word for word: untranslated, or a wrong file.

    Such text teaches the target nothing, and makes its zero-shot scores better than they are. Nothing is said where the
    source is not among the samples.
    """
    original = set(taken[source].plain_texts()) if source in taken else set()
    for language, sample in taken.items():
        texts = sample.plain_texts()
        copies = [text for text in texts if text in original]
        share = sum(map(len, copies)) / max(sum(map(len, texts)), 1)
        if language != source and share >= _COPIED_SHARE:
            yield (
                f"{language}: {len(copies):,} of {len(texts):,} documents, {share:.0%} of the text, are in {source!r} "
                "word for word. Scores are too good if they stay: check that the file is the right one, and remove "
                "documents that are not translated."
            )


def _is_local(source: TextSource) -> bool:
    if isinstance(source, Folder):
        return uri_of(source.path) is None
    return isinstance(source, Files) and not any(uri_of(name) for names in source.paths.values() for name in names)
