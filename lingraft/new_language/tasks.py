"""Finetuned tasks that a new language is judged on and exported with, checked before anything is trained."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import ParallelDocuments, ParallelLines, Task, TaskKindName
from lingraft.config.translations import ParallelText
from lingraft.data.splits import SplitName
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError, MissingExtraError, TextError
from lingraft.huggingface.model import hf_class_of
from lingraft.stages.evaluate import load_tasks
from lingraft.tasks.dev_score import dev_score_and_seed
from lingraft.tasks.examples import load_examples
from lingraft.tasks.finetuned import TaskModel
from lingraft.tasks.kinds import kind_of
from lingraft.tasks.searches import load_searches


@dataclass(frozen=True)
class LanguageTask:
    """A task with all its finetuning seeds, without their weights."""

    settings: Task
    labels: list[str]
    shape: EncoderShape
    folders: dict[int, Path]
    """Folders by finetuning seed."""
    best: int
    """Seed with the highest dev score, which is exported."""
    best_fingerprint: str
    """Fingerprint of the task with that seed."""
    loader: str
    """Class that loads its checkpoint."""

    @property
    def best_folder(self) -> Path:
        """Folder of the seed that is exported."""
        return self.folders[self.best]

    def in_recipe(self, language: str) -> Task:
        """Return the settings for a recipe with one target language."""
        examples = {tag: asked for tag, asked in self.settings.examples.items() if tag == language}
        return self.settings.model_copy(update={"languages": (), "examples": examples})

    def examine(self, language: str, source: str, text: Artifact, tokenizer: Tokenizer) -> str:
        """Return the hash of the test examples in a language.

        Raises:
            NotJudgedError: it has none there, or they cannot be had.
        """
        if self.settings.test is None and not self.settings.reads_text:
            raise NotJudgedError("it has no test examples. Give sentence pairs, or name their file in a recipe")
        if not self.settings.covers(language):
            raise NotJudgedError(f"its test examples are in {list(self.settings.languages)}, none in {language!r}")
        if self.settings.reads_text:
            _require_labels(text, language)
        if isinstance(self.settings.test, ParallelDocuments):
            return text.fingerprint
        try:
            if self.settings.kind == "retrieval":
                return _hash(load_searches(self.settings, language, source))
            examples = load_examples(self.settings, "test", language, text)
        except (TextError, MissingExtraError) as error:
            raise NotJudgedError(str(error)) from error
        kind_of(self.settings).prepare(examples, self.labels, tokenizer, self.shape)
        return _hash(examples)


class NotJudgedError(TextError):
    """A task cannot be judged in a language; the message is the reason."""


def open_tasks(
    folders: Sequence[Path], primary: str, tested: Iterable[Task] = (), pairs: ParallelText | None = None
) -> dict[str, LanguageTask]:
    """Load the tasks, and return them by name.

    Args:
        folders: task artifacts, one a task and seed.
        primary: fingerprint of the primary that all must belong to.
        tested: tasks of a recipe; those of the same name and kind bring test examples and the languages that have some,
            which an imported task lacks.
        pairs: sentence pairs of the language; by those that are held out, tasks of kind 'retrieval' are tested that
            have no test examples.
    """
    tests = {(task.name, task.kind): task for task in tested}
    held_out = ParallelLines(kind="parallel", files=pairs, held_out=True) if pairs else None
    return {
        name: _without_weights(name, models, primary, tests, held_out) for name, models in load_tasks(folders).items()
    }


def _hash(examples: Sequence[object]) -> str:
    return hashlib.sha256("\n".join(map(repr, examples)).encode()).hexdigest()


def _require_labels(text: Artifact, language: str) -> None:
    documents = text.manifest.detail("documents", dict[SplitName, int])["test"]
    labelled = sum(text.manifest.detail("labels", dict[SplitName, dict[str, int]])["test"].values())
    if labelled < documents:
        raise NotJudgedError(
            f"{documents - labelled:,} of {documents:,} test documents in {language!r} have no label. The task is "
            "exported all the same; to have scores, label all documents"
        )


def _without_weights(
    name: str,
    models: Sequence[TaskModel],
    primary: str,
    tests: Mapping[tuple[str, TaskKindName], Task],
    held_out: ParallelLines | None,
) -> LanguageTask:
    by_seed = {model.seed: model for model in models}
    if len(by_seed) < len(models):
        raise ArtifactError(
            f"task {name!r} was given with seeds {[model.seed for model in models]}. Give each seed once."
        )
    for model in models:
        what = f"task {name!r} in {model.folder}"
        require_aligned(what, model.aligned_with, primary, "Finetune the task again")
    first = models[0]
    settings = first.settings
    if test := tests.get((name, settings.kind)):
        settings = settings.model_copy(update={"test": test.test, "languages": test.languages})
    if settings.kind == "retrieval" and settings.test is None:
        settings = settings.model_copy(update={"test": held_out})
    if settings.reads_text:  # whether the new language has labels is seen in its text
        settings = settings.model_copy(update={"languages": ()})
    best = max(models, key=lambda model: dev_score_and_seed(model.manifest.details))
    return LanguageTask(
        settings=settings,
        labels=first.labels,
        shape=first.shape,
        folders={seed: model.folder for seed, model in by_seed.items()},
        best=best.seed,
        best_fingerprint=best.fingerprint,
        loader=hf_class_of(first.net).loader,
    )
