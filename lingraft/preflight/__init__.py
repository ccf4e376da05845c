"""Checks of everything a recipe depends on, before any compute: text, labels, examples, resources, sizes, outputs.

All problems are found at once and reported in one list, with file and line. A check takes bounded time however much
text there is: of each language it samples `samples.MAX_CHARACTERS`, spread over the files, and looks through the rest
for `samples.SCAN_S`; it reads `examples.MAX_EXAMPLES` of each file of task examples, and parallel text and dictionaries
for `resources.MAX_SECONDS`. What lies behind that is checked when it is read.

Text that seems to be in another language, or that is the source's word for word, is a warning and not a problem.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.console import say
from lingraft.data import documents
from lingraft.data.languages import warn_of_unknown_codes
from lingraft.data.text import labelling_tasks
from lingraft.errors import TextError
from lingraft.preflight import examples, labels, outputs, resources, samples, sizes
from lingraft.preflight.languages import load_detector, wrong_texts
from lingraft.preflight.samples import TextSample

Problems = dict[str, list[str]]
"""Messages by the language that they concern."""
_MOST_OF_A_KIND = 20


class NotReadyError(TextError):
    """A recipe cannot be run as it is; the message lists every problem that was found."""


def require_ready(
    recipe: Recipe,
    out: Path | None = None,
    languages: Sequence[str] | None = None,
    taken: Mapping[str, TextSample] | None = None,
) -> None:
    """Check a recipe's text, labels, task examples and sizes in some languages or all, and the folder of results.

    Args:
        recipe: recipe to run.
        out: folder of the results.
        languages: languages to check; all of the recipe's if None.
        taken: samples of their text by language, as the recipe splits it; they are taken now if None.

    Raises:
        NotReadyError: the message lists everything that is wrong.
    """
    found = find_problems(recipe, recipe.languages if languages is None else languages, taken=taken)
    _require_none([*outputs.output_problems(out), *chain.from_iterable(found.values())])


def require_some_ready(recipe: Recipe, languages: Sequence[str], out: Path | None = None, source: bool = False) -> None:
    """Check languages that do not wait for each other: report all problems, and refuse only if no language is ready.

    With `source`, the source is needed as well.

    Raises:
        NotReadyError: every language has a problem, the source has one and is needed, or results cannot be written.
    """
    needed = [recipe.source.language] if source else []
    found, places = find_problems(recipe, [*needed, *languages]), [*outputs.output_problems(out)]
    listed = [*places, *chain.from_iterable(found.values())]
    none_is_ready = bool(found) and {*languages} <= found.keys()
    if places or none_is_ready or not found.keys().isdisjoint(needed):
        raise NotReadyError(_format_problems(listed))
    if listed:
        say(f"{_format_problems(listed)}\nThe other languages go on.")


def require_addable(recipe: Recipe, language: str, tasks: Iterable[Task], out: Path, smaller_vocabulary: bool) -> None:
    """Check the text of a language that is added to a primary at hand.

    Finetuned tasks without readable, labelled test examples in the language are not judged, which is no problem.

    Raises:
        NotReadyError: the message lists everything that is wrong.
    """
    judged = tuple(task for task in tasks if _can_be_judged(recipe, task, language))
    with_tasks = recipe.model_copy(update={"tasks": judged})
    found = find_problems(with_tasks, [language], smaller_vocabulary)
    _require_none([*outputs.output_problems(out), *chain.from_iterable(found.values())])


def find_problems(
    recipe: Recipe,
    languages: Sequence[str],
    smaller_vocabulary: bool = False,
    taken: Mapping[str, TextSample] | None = None,
) -> Problems:
    """Return everything that is wrong with the text, labels, task examples and resources of some languages.

    Args:
        recipe: recipe to run.
        languages: languages to check, the source among them or not.
        smaller_vocabulary: whether a text that does not support the recipe's vocabulary gets a smaller one.
        taken: samples of their text by language, as the recipe splits it; they are taken now if None.
    """
    began = time.monotonic()
    warn_of_unknown_codes(languages)
    if taken is None:
        taken = {language: samples.take_sample(recipe.text, recipe.split, language) for language in languages}
    for sample in taken.values():
        samples.scan_rest(sample, recipe.text, recipe.split)
    known = labels.known_labels(recipe, taken)
    of_examples = list(examples.example_problems(recipe, languages))
    detector = load_detector()
    of_resources = list(resources.resource_problems(recipe, taken, detector))
    wrong = list(wrong_texts(taken, detector))
    found = {
        language: [
            *_shortened(language, sample.problems()),
            *(text.message for text in wrong if text.language == language and text.clear),
            *_shortened(language, labels.label_problems(recipe, sample, known)),
            *_shortened(language, sizes.size_problems(recipe, sample, smaller_vocabulary)),
            *_shortened(language, (message for of, message in of_examples if of == language)),
            *_shortened(language, (f"{of}: {message}" for of, message in of_resources if of == language)),
        ]
        for language, sample in taken.items()
    }
    part = [language for language, sample in taken.items() if not sample.knows_labels]
    limit = f"; of {', '.join(part)} only a part of about {samples.MAX_CHARACTERS:,} characters or more" if part else ""
    say(f"Checked the text of {', '.join(taken)} in {time.monotonic() - began:.1f} s{limit}.")
    for warning in (
        *(text.message for text in wrong if not text.clear),
        *samples.copy_warnings(taken, recipe.source.language),
        *resources.learned_test_warnings(recipe, languages),
    ):
        say(warning)
    return {language: messages for language, messages in found.items() if messages}


def drop_unlabelled_tasks(recipe: Recipe) -> Recipe:
    """Return the recipe without its tasks of kind 'documents' if no document of any language has a label.

    If no other task is left, the primary itself is bundled, so that there is an endpoint for masked tokens and
    embeddings. Where only some documents lack labels, the recipe stays as it is, and the check lists them.
    """
    named = [task.name for task in labelling_tasks(recipe, recipe.source.language)]
    taken = [samples.take_sample(recipe.text, recipe.split, language) for language in recipe.languages] if named else []
    if not any(sample.documents for sample in taken) or any(sample.has_labels for sample in taken):
        return recipe
    left = tuple(task for task in recipe.tasks if task.name not in named)
    lost = "" if left else " The run learns embeddings and serves masked tokens; there will be no zero-shot scores."
    say(
        f"No document has a label, so the recipe's tasks of kind 'documents', {named}, are left out.{lost} "
        f"To have one, label all documents in {recipe.source.language!r}: the key 'label' in JSONL, or one sub-folder "
        "a label."
    )
    tolerances = {name: value for name, value in recipe.gate.tolerances.items() if name not in named}
    gate = recipe.gate.model_copy(update={"tolerances": tolerances})
    served = recipe.serve_primary or not left
    return recipe.model_copy(update={"tasks": left, "gate": gate, "serve_primary": served})


def _can_be_judged(recipe: Recipe, task: Task, language: str) -> bool:
    if not recipe.judges(task, language):
        return False
    if task.reads_text:
        sample = samples.take_sample(recipe.text, recipe.split, language)
        return sample.has_labels and not sample.unlabelled
    return not examples.scan_split(task, "test", language, recipe.source.language).errors


def _require_none(found: Sequence[str]) -> None:
    if found:
        raise NotReadyError(_format_problems(found))


def _shortened(language: str, messages: Iterable[str]) -> list[str]:
    """Return the first of a language's problems of one kind, each in one line, and how many there are besides."""
    every = list(messages)
    shown = [" ".join(message.split()) for message in every[:_MOST_OF_A_KIND]]
    if len(every) > len(shown):
        shown.append(f"{language}: and {len(every) - len(shown):,} more like these")
    return shown


def _format_problems(found: Sequence[str]) -> str:
    counted = "1 problem was" if len(found) == 1 else f"{len(found)} problems were"
    # The expected layout of files is explained once, in the last message that has it.
    last = max((place for place, message in enumerate(found) if documents.LAYOUT in message), default=0)
    lines = [f"{counted} found before anything was computed:"]
    for place, message in enumerate(found):
        shown = message if place == last else message.replace(f" {documents.LAYOUT}", "")
        lines.append(f"  {place + 1}. {shown}")
    return "\n".join(lines)
