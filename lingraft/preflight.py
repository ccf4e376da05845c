"""Checks of what a recipe reads and writes, in seconds, before anything is computed: a list of all that is wrong.

Of each language's text `CHARACTERS` are read, spread over its files, and of examples and pairs the first `RECORDS` of a
file. What lies behind that is checked when it is read.
"""

import os
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from lingraft.artifacts.cache import RESULTS_VARIABLE
from lingraft.artifacts.files import require_writable
from lingraft.artifacts.remote import uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import ParallelDocuments, Retrieval, Task
from lingraft.config.text import Files, HuggingFace, Split, TextSource
from lingraft.console import say
from lingraft.data import documents, language_checks
from lingraft.data.bilingual_dictionary import word_pairs_or_errors
from lingraft.data.cleaning import clean_documents
from lingraft.data.language_checks import PairSample
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.languages import warn_of_unknown_codes
from lingraft.data.parallel_text import Pair, PairOrError, file_names, filter_pairs, pairs_or_errors
from lingraft.data.splits import SPLITS, SplitName, split_of
from lingraft.data.text import LABELLING, empty_splits_error, read_source
from lingraft.errors import LingraftError, TextError
from lingraft.tables import counted
from lingraft.tasks.examples import read_examples
from lingraft.tasks.labelled_texts import Example
from lingraft.tasks.searches import load_searches
from lingraft.tasks.tagged_sentences import Sentence

CHARACTERS = 1 << 22
RECORDS = 100_000
_MOST_OF_A_KIND = 20
_ON_LINE = re.compile(r"(.+?, (?:line|row)) (\d+)(: .*)")


class NotReadyError(TextError):
    """A recipe cannot be run as it is; the message lists every problem that was found."""


class Problem(NamedTuple):
    """Something that is wrong, in one place or in several."""

    text: str
    places: int = 1


@dataclass
class Sample:
    """A language's text, or a task's examples in it, as far as they were read."""

    errors: list[str] = field(default_factory=list)
    texts: dict[SplitName, list[str]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    labels: dict[SplitName, dict[str, list[str]]] = field(default_factory=lambda: {split: {} for split in SPLITS})
    """Files and lines of each label."""
    unlabelled: list[str] = field(default_factory=list)
    """Files and lines of documents without a label."""
    notes: list[str] = field(default_factory=list)
    """Findings to print if nothing is wrong."""
    whole: bool = True
    """Whether everything was read."""

    @property
    def documents(self) -> list[str]:
        """Texts of all splits."""
        return [*chain.from_iterable(self.texts.values())]


def require_ready(
    recipe: Recipe, out: Path | None = None, languages: Sequence[str] | None = None, mined: Sequence[str] = ()
) -> None:
    """Check some languages of a recipe, or all, and the folder of results; see `find_problems`."""
    notes: list[str] = []
    found = find_problems(recipe, recipe.languages if languages is None else languages, notes, mined)
    if listed := [*_output_problems(out), *chain.from_iterable(found.values())]:
        raise NotReadyError(_format_problems(listed))
    say("\n".join(notes))


def require_some_ready(recipe: Recipe, languages: Sequence[str], out: Path | None = None, source: bool = False) -> None:
    """Check languages that do not wait for each other: print all problems, and refuse only if no language is ready.

    With `source`, the source must be ready as well.
    """
    needed = [recipe.source.language] if source else []
    notes: list[str] = []
    found, places = find_problems(recipe, [*needed, *languages], notes), [*_output_problems(out)]
    listed = [*places, *chain.from_iterable(found.values())]
    if places or (found and found.keys() >= {*languages}) or not found.keys().isdisjoint(needed):
        raise NotReadyError(_format_problems(listed))
    if listed:
        say(f"{_format_problems(listed)}\nThe other languages go on.")
    say("\n".join(notes))


def require_addable(recipe: Recipe, language: str, tasks: Iterable[Task], out: Path) -> None:
    """Check a language that is added to a primary at hand, and those of the tasks that it has labelled tests of."""

    def is_judged(task: Task) -> bool:
        if not recipe.judges(task, language):
            return False
        if task.reads_text:
            text = read_text(recipe.text, recipe.split, language)
            return any(text.labels.values()) and not text.unlabelled
        return not _read_examples(task, ["test"], language, recipe.source.language).errors

    judged = recipe.model_copy(update={"tasks": tuple(filter(is_judged, tasks))})
    source = recipe.source.language
    mined = [source] if isinstance(recipe.text, Files) and source in recipe.text.paths else []
    require_ready(judged, out, [language], mined)


def find_problems(
    recipe: Recipe, languages: Sequence[str], notes: list[str], mined: Sequence[str] = ()
) -> dict[str, list[Problem]]:
    """Return, by language, everything that is wrong with text, labels, examples, pairs and dictionaries.

    Of languages whose text is only `mined` for pairs, it is text alone. `notes` gets what is to be said of the
    languages that can go on.
    """
    warn_of_unknown_codes(languages)
    texts = {language: read_text(recipe.text, recipe.split, language) for language in (*languages, *mined)}
    detector = LanguageDetector.load()
    known = _known_labels(recipe, texts.get(recipe.source.language))
    found = {}
    for language, text in texts.items():
        kinds: list[Iterable[str]] = [text.errors, _text_problems(text, language, detector)]
        if language not in mined:
            kinds.append(_split_problems(recipe, text, language))
            kinds.append(_task_problems(recipe, text, language, known))
            kinds.append(_pair_problems(recipe, text, language, detector))
        if problems := [problem for kind in kinds for problem in _grouped(language, kind)]:
            found[language] = problems
        else:
            notes += text.notes
    notes.append(f"Checked the text of {', '.join(each for each in texts if each not in found)}.")
    return found


def read_text(source: TextSource, division: Split, language: str) -> Sample:
    """Read a sample of a language's text, cleaned and split as a recipe says; a dataset is streamed."""
    sample, notes = Sample(), Counter[str]()
    if isinstance(source, HuggingFace):
        source = source.model_copy(update={"streaming": True})
    for found in read_source(source, language, notes, Counter(), CHARACTERS):
        if isinstance(found, LingraftError):
            sample.errors.append(str(found))
            continue
        for document in clean_documents([found], source.cleaning, Counter()):
            split = split_of(document.name, division)
            sample.texts[split].append(document.text)
            if document.label is None:
                sample.unlabelled.append(found.place)
            else:
                sample.labels[split].setdefault(document.label, []).append(found.place)
    sample.whole = not notes[documents.SAMPLED]
    return sample


def _read_examples(task: Task, splits: Iterable[SplitName], language: str, source: str) -> Sample:
    """Read examples that a task has of its own, and go on behind errors."""
    sample = Sample()
    for split in splits:
        if getattr(task, split) is None:
            continue  # an imported task has only tests
        if task.kind == "retrieval" and split == "test":
            try:
                if not isinstance(task.test, ParallelDocuments):  # which are checked with the text
                    load_searches(task, language, source)
            except LingraftError as error:
                sample.errors.append(f"{split}: {error}")
            continue
        for number, example in enumerate(islice(read_examples(task, split, language), RECORDS), start=1):
            sample.whole = sample.whole and number < RECORDS
            if isinstance(example, LingraftError):
                sample.errors.append(f"{split}: {example}")
            elif isinstance(example, Example | Sentence):
                for label in (example.label,) if isinstance(example, Example) else example.tags:
                    sample.labels[split].setdefault(label, []).append(example.place)
    return sample


def _known_labels(recipe: Recipe, text: Sample | None) -> Mapping[str, Sequence[str]]:
    """Return the labels by task: the recipe's, else those of the source's training examples where all were read."""
    source = recipe.source.language
    known: dict[str, Sequence[str]] = {}
    for task in recipe.tasks:
        if task.labels or not task.has_labels:
            known[task.name] = task.labels
            continue
        if task.reads_text:
            found = text = text or read_text(recipe.text, recipe.split, source)
        else:
            found = _read_examples(task, ["train"], source, source)
        if found.whole and not found.errors:
            known[task.name] = tuple(sorted(found.labels["train"]))
    return known


def _split_problems(recipe: Recipe, text: Sample, language: str) -> Iterator[str]:
    counts = {split: len(texts) for split, texts in text.texts.items()}
    if text.documents and not text.errors and text.whole and (message := empty_splits_error(counts, language, recipe)):
        yield message


def _text_problems(text: Sample, language: str, detector: LanguageDetector) -> Iterator[str]:
    if not text.errors and not text.documents:
        yield "the text holds no document that is not empty. Give text in this language."
    if other := language_checks.other_language(language, text.documents, detector):
        message = (
            f"the text should be in {language!r}, but seems to be in {other.language!r} ({other.evidence}). Check that "
            "the file is the right one."
        )
        if other.clear:
            yield f"{message} If it is, in a variety that is not recognised, tag it by a private code, 'qaa' to 'qtz'."
        else:
            text.notes.append(f"{language}: {message}")


def _task_problems(recipe: Recipe, text: Sample, language: str, known: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield examples that are missing or malformed, and labels that are missing or that a task does not know."""
    is_source = language == recipe.source.language
    for task in recipe.tasks:
        splits: list[SplitName] = ["train", "dev"] if is_source else []
        splits += ["test"] if recipe.judges(task, language) else []
        found = text if task.reads_text else _read_examples(task, splits, language, recipe.source.language)
        if is_source and not task.reads_text and task.train is None and not (task.is_imported and recipe.source.model):
            yield (
                f"task {task.name!r}, train: there are no examples, which finetuning needs. Name their file or "
                "dataset: [[tasks]] train."
            )
        if not task.reads_text:
            yield from (f"task {task.name!r}, {error}" for error in found.errors)
        elif splits and text.unlabelled:
            count = len(text.unlabelled)
            more = f" and {count - 1:,} further documents have" if count > 1 else " has"
            needs = f"no label, and task {task.name!r} needs one for each document"
            yield f"{text.unlabelled[0]}{more} {needs}. {LABELLING}"
        if any(found.labels.values()) and task.name in known:
            yield from _label_problems(found, task, splits, known[task.name])


def _label_problems(sample: Sample, task: Task, splits: Sequence[SplitName], known: Sequence[str]) -> Iterator[str]:
    if "train" in splits and len(known) < 2:
        yield f"task {task.name!r} needs two or more labels to tell apart, and has {[*known]}. Add examples of others."
        return
    unknown = [(split, label) for split in splits for label in sorted({*sample.labels[split]} - {*known})]
    for split, label in unknown:
        [first, *others] = sample.labels[split][label]
        more = f" and {len(others):,} more of the {split} split have" if others else " has"
        yield (
            f"{first}{more} label {label!r}; task {task.name!r} knows {[*known]}. Correct the label, or add training "
            "examples with it."
        )


def _pair_problems(recipe: Recipe, text: Sample, language: str, detector: LanguageDetector) -> Iterator[str]:
    """Yield what is wrong with the parallel text and the dictionary of a language, and how its pairs are pooled."""
    alignment, languages = recipe.alignment, (recipe.source.language, language)
    for files in [each[language] for each in (alignment.parallel, alignment.judged) if language in each]:
        errors, sample = _read_pairs(pairs_or_errors(files, languages, Counter()), file_names(files))
        yield from errors or language_checks.language_problems(sample, languages, detector)
        text.notes += sample.notes
    if words := alignment.dictionary.get(language):
        errors, sample = _read_pairs(word_pairs_or_errors(words, languages, Counter()), words)
        yield from errors or language_checks.dictionary_problems(sample, languages, detector, "\n".join(text.documents))
        text.notes += sample.notes
    # Of an imported task whose section is absent nothing is known.
    searches = [task for task in recipe.tasks if task.kind == "retrieval" and (task.retrieval or task.train)]
    pooled = {task.name: (task.retrieval or Retrieval()).pooling for task in searches}
    pairs = recipe.adaptation.pairs if language in alignment.parallel else None
    if pairs and pooled and pairs.pooling not in pooled.values():
        yield (
            f"[adaptation.pairs] pools sentences by {pairs.pooling!r}, but tasks pool texts otherwise ({pooled}): the "
            "language would learn other vectors than it is searched by. Set pooling to a task's."
        )


def _read_pairs(found: Iterator[PairOrError], origin: str) -> tuple[list[str], PairSample]:
    errors: list[str] = []
    sample = PairSample(origin)

    def pairs() -> Iterator[Pair]:
        for each in islice(found, RECORDS):
            if isinstance(each, LingraftError):
                errors.append(str(each))
            else:
                yield each

    try:
        deque(sample.sampled(filter_pairs(pairs(), origin, Counter())), maxlen=0)
    except TextError as error:
        if sample.count or not errors:  # a file of nothing but errors has said already that it has no pairs
            errors.append(str(error))
    return errors, sample


def _output_problems(out: Path | None) -> Iterator[Problem]:
    """Yield places of results that this process has no rights or credentials to write; the folder `out` is not made."""
    for place in filter(None, (str(out) if out else "", os.environ.get(RESULTS_VARIABLE))):
        try:
            if uri := uri_of(place):
                RemotePath.of(uri).require_writable()
            else:
                require_writable(Path(place))
        except LingraftError as error:
            yield Problem(str(error))


def _grouped(language: str, messages: Iterable[str]) -> list[Problem]:
    """Put what is wrong in the same way on several lines of a file together; of many kinds, only count the others."""
    groups: dict[tuple[str, str], list[int]] = {}
    for message in messages:
        text = " ".join(message.split())
        file, number, wrong = found.groups() if (found := _ON_LINE.fullmatch(text)) else (text, 0, "")
        groups.setdefault((file, wrong), []).append(int(number))
    every = [
        Problem(f"{language}: {file}{_format_lines(numbers) if wrong else ''}{wrong}", len(numbers))
        for (file, wrong), numbers in groups.items()
    ]
    more = sum(problem.places for problem in every[_MOST_OF_A_KIND:])
    return every[:_MOST_OF_A_KIND] + ([Problem(f"{language}: and {more:,} more like these", more)] if more else [])


def _format_lines(numbers: Sequence[int]) -> str:
    first, last, count = numbers[0], numbers[-1], len(numbers)
    some = f" ({count:,} of them)" if count <= last - first else ""
    return f" {first}" if count == 1 else f"s {first:,} to {last:,}{some}"


def _format_problems(found: Sequence[Problem]) -> str:
    # The expected layout of files is explained once, in the last message that has it.
    last = max((place for place, problem in enumerate(found) if documents.LAYOUT in problem.text), default=0)
    lines = [f"{counted(sum(problem.places for problem in found), 'problem')} found before anything was computed:"]
    for place, problem in enumerate(found):
        shown = problem.text if place == last else problem.text.replace(f" {documents.LAYOUT}", "")
        lines.append(f"  {place + 1}. {shown}")
    return "\n".join(lines)
