"""A recipe for a folder of text: languages by file names, labels if there are any, sizes that fit text and machine."""

import contextlib
import itertools
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

from lingraft import preflight
from lingraft.config.recipe import Recipe
from lingraft.config.text import Files, Folder, Split
from lingraft.data.documents import text_files
from lingraft.data.lines import read_lines
from lingraft.errors import RecipeError, TextError, TokenizerError
from lingraft.new_recipe import fitting, writing
from lingraft.new_recipe.fitting import FittedSizes, Machine, TextAmount
from lingraft.new_recipe.languages import FoundText, find_text
from lingraft.preflight import samples, sizes
from lingraft.preflight.samples import TextSample
from lingraft.tables import aligned

_DEFAULT_SOURCE = "en"
_BLOCKS = (64, 32, 16, 8)
"""Lengths of blocks for text that is too short for longer ones."""
_EXPANSION = {".gz": 3.0, ".xz": 4.0, ".zst": 3.5, ".parquet": 3.0}
"""Approximate ratio of the size of unpacked text to that of its file."""
_FILES_OF_SHARE, _LINES_OF_SHARE = 8, 1000
_EXAMPLE_CHARACTERS = 20, 160
_SENTENCE_END = re.compile(r"[.!?]\s|[。！？।]")
_SPECIAL_TOKENS = 4
"""Special tokens at a text's ends, with one to spare."""


@dataclass(frozen=True)
class NewRecipe:
    """A recipe that was fitted to a folder of text, and what it was fitted by."""

    found: FoundText
    taken: dict[str, TextSample]
    """Samples by language, the source first."""
    characters: dict[str, float]
    """Characters of all text, by language; estimated where not all was read."""
    labels: tuple[str, ...]
    """Labels of the task; none if there is no task."""
    no_task: str
    """Reason why there is no task; empty if there is one."""
    not_judged: dict[str, str]
    """Reasons why the task is not judged in some targets, by language."""
    machine: Machine
    fitted: FittedSizes
    text: str
    """The recipe as TOML."""

    @classmethod
    def of(
        cls,
        folder: Path,
        source: str | None = None,
        name: str | None = None,
        hours: float = 0.5,
        machine: Machine | None = None,
    ) -> Self:
        """Look at a folder of text, and fit a recipe to it.

        Args:
            folder: one file or folder of text for each language.
            source: source language; by default English if it is there, else the one with the most text.
            name: name of the project; by default the folder's.
            hours: approximate time for training.
            machine: machine that trains; by default this one.

        Raises:
            TextError: there is text in fewer than two languages, or it cannot be read or is too short; everything that
                is wrong is listed.
            RecipeError: there is no text in the source language asked for.
        """
        found, division = find_text(folder), Split()
        described = _source_of(found)
        taken = {language: samples.take_sample(described, division, language) for language in found.paths}
        characters = {language: _characters(found, sample) for language, sample in taken.items()}
        chosen = _source_language(found, characters, source)
        taken = {chosen: taken.pop(chosen)} | taken
        labels, no_task = _labels(taken, chosen)
        not_judged = _not_judged(taken, chosen, labels) if labels else {}
        machine = machine or Machine.here()
        project = _project_name(name or folder.resolve().name)

        def write(fitted: FittedSizes) -> str:
            examples = _examples(taken, fitted.block_tokens) if labels else {}
            return writing.format_recipe(
                name=project,
                text=described,
                languages=[*taken],
                labels=labels,
                judged=[language for language in taken if language not in not_judged] if not_judged else [],
                no_task=no_task,
                examples=examples,
                machine=machine,
                fitted=fitted,
            )

        amount = TextAmount(
            characters={language: count * division.train_share for language, count in characters.items()},
            source=chosen,
            alphabet=max(sample.alphabet() for sample in taken.values()),
        )
        fitted = _shrink_to_text(fitting.fit_sizes(amount, machine, hours), amount, taken, write)
        made = cls(
            found=found,
            taken=taken,
            characters=characters,
            labels=labels,
            no_task=no_task,
            not_judged=not_judged,
            machine=machine,
            fitted=fitted,
            text=write(fitted),
        )
        preflight.require_ready(made.recipe, taken=taken)
        return made

    @property
    def recipe(self) -> Recipe:
        """The recipe as a loaded object."""
        return _parsed(self.text)

    @property
    def source(self) -> str:
        """The source language."""
        return next(iter(self.taken))

    def summary(self) -> str:
        """Return what was found and chosen, in lines for people."""
        rows = [("language", "from", "characters", "documents", "labels")]
        rows += [self._row(language, sample) for language, sample in self.taken.items()]
        lines = [f"  {line}" for line in aligned(rows, left=len(rows[0]))]
        lines += [f"  {name} was left out: {reason}" for name, reason in self.found.others.items()]
        fitted, shape = self.fitted, self.fitted.shape
        duration = f"{max(fitted.hours * 60, 1):.0f} min" if fitted.hours < 2 else f"{fitted.hours:.1f} h"
        lines += [
            f"machine   {self.machine}",
            f"source    {self.source}; targets: {', '.join([*self.taken][1:])}",
            f"task      {', '.join(self.labels)}" if self.labels else f"task      none: {self.no_task}",
            *(f"          not judged in {language}: {reason}" for language, reason in self.not_judged.items()),
            f"encoder   {shape.layers} layers of width {shape.width}, blocks of {fitted.block_tokens} tokens, "
            f"{fitted.vocabulary:,} pieces a language",
            f"training  {fitted.pretraining_steps:,} updates of pretraining ({fitted.pretraining_epochs:.1f} times the "
            f"text), {fitted.adaptation_steps:,} for each language: roughly {duration} at an assumed speed; "
            "finetuning, judging and other steps come on top",
        ]
        return "\n".join(lines)

    def _row(self, language: str, sample: TextSample) -> tuple[str, str, str, str, str]:
        about = "" if sample.whole else "about "
        more = "" if sample.whole else "or more"
        labels = sorted({label for counts in sample.labels.values() for label in counts})
        names = ", ".join(path.name for path in self.found.paths[language][:3])
        return (
            language,
            names + (", ..." if len(self.found.paths[language]) > 3 else ""),
            f"{about}{self.characters[language]:,.0f}",
            f"{sample.documents:,} {more}".strip(),
            textwrap.shorten(f"{len(labels)}: {', '.join(labels)}", 60, placeholder=" ...") if labels else "none",
        )


def _parsed(text: str) -> Recipe:
    return Recipe.parse(tomllib.loads(text), "the recipe that init would write")


def _source_of(found: FoundText) -> Files | Folder:
    if found.one_each:
        return Folder(kind="folder", path=str(found.folder.resolve()))
    paths = {language: tuple(str(path.resolve()) for path in paths) for language, paths in found.paths.items()}
    return Files(kind="files", paths=paths)


def _characters(found: FoundText, sample: TextSample) -> float:
    """Return the characters of a language's whole text, estimated by the size of its files where not all was read."""
    read = sum(sample.characters.values())
    if sample.whole or not read:
        return read
    encoded = sum(len(text.encode()) for texts in sample.texts.values() for text in texts)
    places = [path for place in found.paths[sample.language] for path in text_files(place)]
    files = [path for path in places if isinstance(path, Path)]
    records = [path for path in files if ".jsonl" in path.suffixes]
    shares = dict.fromkeys(records, _text_share(records))
    size = sum(path.stat().st_size * _EXPANSION.get(path.suffix, 1.0) * shares.get(path, 1.0) for path in files)
    return max(read, size * read / encoded)


def _text_share(files: Sequence[Path]) -> float:
    """Return the share of JSONL files' bytes that is text, and no keys, names, labels or escapes, by some first lines.

    Lines that cannot be read are left out: the check of the text lists them.
    """
    text = every = 0
    for path in files[:: len(files) // _FILES_OF_SHARE + 1]:
        with contextlib.suppress(TextError):
            for line in islice(read_lines(path), _LINES_OF_SHARE):
                with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
                    text += len(json.loads(line)["text"].encode())
                    every += len(line.encode()) + 1
    return text / every if text else 1.0


def _source_language(found: FoundText, characters: dict[str, float], asked: str | None) -> str:
    if asked and asked not in found.paths:
        raise RecipeError(f"--source {asked!r} has no text in {found.folder}, which has {sorted(found.paths)}.")
    return asked or (
        _DEFAULT_SOURCE if _DEFAULT_SOURCE in found.paths else max(characters, key=lambda tag: characters[tag])
    )


def _labels(taken: dict[str, TextSample], source: str) -> tuple[tuple[str, ...], str]:
    """Return the labels of a task that is learned from the source's documents, or the reason why there is none."""
    if not any(sample.has_labels for sample in taken.values()):
        return (), "no document has a label"
    sample = taken[source]
    if sample.unlabelled:
        return (), (
            f"in {source}, {_unlabelled(sample)}, and a task is learned from the source's labels. Label or remove "
            "them, and run this again"
        )
    labels = tuple(sorted(sample.labels["train"]))
    if len(labels) < 2:
        return (), f"the documents in {source} have fewer than two labels: {list(labels)}"
    if strange := sorted({*sample.labels["test"]} - {*labels}):
        return (), f"the test documents in {source} have labels that its training documents do not have: {strange}"
    return labels, ""


def _not_judged(taken: dict[str, TextSample], source: str, labels: Sequence[str]) -> dict[str, str]:
    """Reasons why a task cannot be judged in some targets, which need no labels to be learned."""
    reasons = {}
    for language, sample in taken.items():
        if language == source:
            continue
        if sample.unlabelled:
            reasons[language] = _unlabelled(sample)
        elif strange := sorted({*sample.labels["test"]} - {*labels}):
            reasons[language] = f"it has labels that {source} does not have: {strange}"
    return reasons


def _unlabelled(sample: TextSample) -> str:
    return (
        f"{len(sample.unlabelled):,} of {sample.counted:,} documents have no label (the first: {sample.unlabelled[0]})"
    )


def _project_name(folder: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-") or "my-project"


def _examples(taken: dict[str, TextSample], block_tokens: int) -> dict[str, str]:
    """Return a line of each language's test documents, or its first sentences, to ask the endpoint about.

    A character is a token of its own where a language has many of them: a longer line may not fit the model.
    """
    shortest, longest = _EXAMPLE_CHARACTERS
    longest = max(shortest, min(longest, block_tokens - _SPECIAL_TOKENS))
    found = {}
    for language, sample in taken.items():
        whole = [" ".join(line.split()) for text in sample.texts["test"] for line in text.splitlines()]
        lines = itertools.chain(whole, (_first_sentences(line, longest) for line in whole))
        if line := next((line for line in lines if shortest <= len(line) <= longest and line.isprintable()), None):
            found[language] = line
    return found


def _first_sentences(line: str, longest: int) -> str:
    ends = [end.end() for end in _SENTENCE_END.finditer(line) if len(line[: end.end()].rstrip()) <= longest]
    return line[: ends[-1]].rstrip() if ends else ""


def _shrink_to_text(
    fitted: FittedSizes, amount: TextAmount, taken: dict[str, TextSample], write: Callable[[FittedSizes], str]
) -> FittedSizes:
    """Return the sizes with fewer pieces and shorter blocks where a text supports no more."""
    whole = [sample for sample in taken.values() if sample.whole and sample.texts["train"]]
    recipe = _parsed(write(fitted))
    with contextlib.suppress(TokenizerError):  # what it says is in the list of everything that is wrong
        pieces = min((sizes.largest_vocabulary(recipe, sample) for sample in whole), default=fitted.vocabulary)
        fitted = replace(fitted, vocabulary=pieces)
    for block_tokens in (fitted.block_tokens, *(length for length in _BLOCKS if length < fitted.block_tokens)):
        shorter = fitting.with_blocks(fitted, block_tokens, amount)
        if not any(list(sizes.size_problems(_parsed(write(shorter)), sample, True)) for sample in whole):
            return shorter
    return fitted
