"""A recipe's work as jobs: each makes one artifact from folders, and says what that depends on.

They are the same whether a command, a pipeline's step or the paper's comparison does them. What trains is imported when
it trains: who asks what a job depends on does not wait for PyTorch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.cache import artifact_fingerprint
from lingraft.artifacts.failures import failure_reason, record_failure, require_inputs_made
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.bilingual_dictionary import parallel_hashes, translation_hashes
from lingraft.tasks.fingerprints import marks_of

if TYPE_CHECKING:
    from lingraft.config.training import Training
    from lingraft.training.schedule import MetricsCallback

Make = Callable[[Path, "MetricsCallback"], Artifact]
"""Writes what a job leaves to the folder given; training tells its progress."""


@dataclass(frozen=True)
class Job:
    """One artifact that is yet to be made."""

    name: str
    """One word, for tracking."""
    title: str
    """For people."""
    kind: Kind
    out: Path
    """Of all that the job leaves."""
    inputs: Mapping[str, Path]
    """Folders by what they are."""
    settings: Mapping[str, Any]
    """All of the recipe that the artifact depends on, as JSON can hold it."""
    make: Make
    part: str = ""
    """Where the artifact is within `out`, if that holds more."""
    work: float = 1.0
    """How much there is to do, to be compared with jobs of the same kind only."""
    bears_failed_inputs: bool = False
    """Whether it has something to say even of inputs that failed."""
    outside: Callable[[], Mapping[str, Any]] = dict
    """Marks of data that no input holds, such as files of examples."""

    @property
    def made(self) -> Path:
        """Where its artifact will be."""
        return self.out / self.part if self.part else self.out

    @cached_property
    def made_from(self) -> dict[str, Any]:
        """What its artifact depends on: settings, and a mark of each input.

        Raises:
            ArtifactError: an input is not there.
        """
        inputs = {
            name: f"failed: {reason}" if (reason := failure_reason(at)) else artifact_fingerprint(at)
            for name, at in self.inputs.items()
        }
        return {"settings": dict(self.settings), "inputs": inputs}

    def attempt(self, make: Callable[[], object]) -> None:
        """Make the artifact by way of `make`, or leave in its place why it could not be made.

        Raises:
            ProvenanceMismatchError: it is there, but was made from something else.
            ArtifactError: nothing can be written.
        """
        with record_failure(self.made, self.title):
            if not self.bears_failed_inputs:
                require_inputs_made(self.inputs.values())
            make()


class LanguageDirs(NamedTuple):
    """Folders of one language's text, tokenizer and blocks."""

    text: Path
    tokenizer: Path
    blocks: Path

    @classmethod
    def under(cls, folder: Path, language: str) -> "LanguageDirs":
        """Where a language's are among those of others."""
        return cls(*(folder / noun / language for noun in cls._fields))


SOURCE_RECIPE = "recipe.json"
"""File beside the folders of a source that was brought from a registry."""


class SourceDirs(NamedTuple):
    """Folders of a project's source; `mini` and `vectors` are empty where the recipe needs none."""

    primary: Path
    tasks: Path
    """Folder of `<task>/seed-<seed>`."""
    evaluation: Path
    mini: Path
    vectors: Path

    @classmethod
    def under(cls, folder: Path) -> "SourceDirs":
        """Folders of a source that has one folder for all of it."""
        return cls(*(folder / noun for noun in cls._fields))


def text(recipe: Recipe, language: str, out: Path) -> Job:
    """Reading a language's text. What decides it leaves the text itself out, unknown before it is read."""

    def make(folder: Path, _: "MetricsCallback") -> Artifact:
        from lingraft.data.text import prepare

        return prepare(recipe, language, folder)

    settings = {"language": language, **recipe_parts(recipe, "text", "split")}
    return Job(f"text-{language}", f"text of {language!r}", Kind.TEXT, out, {}, settings, make)


def tokenizer(recipe: Recipe, language: str, text_folder: Path, out: Path) -> Job:
    """Training a language's tokenizer."""

    def make(folder: Path, _: "MetricsCallback") -> Artifact:
        from lingraft.data.tokenizer.tokenizer import train_tokenizer

        return train_tokenizer(recipe, text_folder, folder)

    inputs, settings = {"text": text_folder}, recipe_parts(recipe, "tokenizer")
    title = f"tokenizer of {language!r}"
    return Job(f"tokenizer-{language}", title, Kind.TOKENIZER, out, inputs, settings, make)


def blocks(recipe: Recipe, language: str, text_folder: Path, tokenizer_folder: Path, out: Path) -> Job:
    """Packing a language's text into blocks of token ids."""

    def make(folder: Path, _: "MetricsCallback") -> Artifact:
        from lingraft.data.blocks import build

        return build(recipe, text_folder, tokenizer_folder, folder)

    inputs = {"text": text_folder, "tokenizer": tokenizer_folder}
    settings = {"block_tokens": recipe.encoder.block_tokens}
    return Job(f"blocks-{language}", f"blocks of {language!r}", Kind.BLOCKS, out, inputs, settings, make)


def language_jobs(recipe: Recipe, language: str, folders: LanguageDirs) -> tuple[Job, Job, Job]:
    """Reading a language's text, training its tokenizer, and packing it into blocks."""
    return (
        text(recipe, language, folders.text),
        tokenizer(recipe, language, folders.text, folders.tokenizer),
        blocks(recipe, language, *folders),
    )


def pretraining(recipe: Recipe, blocks_folder: Path, tokenizer_folder: Path, out: Path) -> Job:
    """Training a primary from nothing, in the source language."""

    def make(folder: Path, watch: "MetricsCallback") -> Artifact:
        from lingraft.stages import pretrain

        return pretrain.pretrain(recipe, blocks_folder, tokenizer_folder, folder, watch)

    inputs = {"blocks": blocks_folder, "tokenizer": tokenizer_folder}
    work = _work(recipe.primary_shape.layers, recipe.pretraining)
    settings = _training_settings(recipe, "pretraining")
    return Job("pretrain", "pretraining", Kind.PRIMARY, out, inputs, settings, make, work=work)


def mini_building(recipe: Recipe, primary: Path, blocks_folder: Path, out: Path) -> Job:
    """Step 1b of a system that has one."""
    settings, depth = recipe.require_mini(), recipe.adaptation.depth
    step = recipe.steps_over(depth)[Stage.BUILD_MINI]

    def make(folder: Path, watch: "MetricsCallback") -> Artifact:
        from lingraft.stages import build_mini

        return build_mini.build_mini(recipe, primary, blocks_folder, folder, watch)

    inputs = {"primary": primary, "blocks": blocks_folder}
    made_by = _training_settings(recipe, "mini") | {"depth": depth}
    work = _work(step.layers, settings)
    return Job("build-mini", "mini-model", Kind.MINI, out, inputs, made_by, make, work=work)


def finetuning(
    recipe: Recipe, task_name: str, seed: int, primary: Path, text_folder: Path, out: Path, layers: int | None = None
) -> Job:
    """Learning a task in the source language with one seed, by a whole primary or by its mini-model of some layers."""
    task, depth = recipe.task(task_name), layers or recipe.primary_shape.layers
    inputs = {"primary": primary} | ({"text": text_folder} if task.kind == "documents" else {})
    no_matter: Any = {"examples": True, "label_names": True, "languages": True, "test": True, "finetuning": {"seeds"}}

    def make(folder: Path, watch: "MetricsCallback") -> Artifact:
        from lingraft.stages import finetune

        given = recipe, task_name, primary, inputs.get("text"), seed, folder, watch
        return finetune.finetune(*given, layers=layers)

    settings = {"task": task.model_dump(mode="json", exclude=no_matter), "layers": depth, "seed": seed}
    name, title = f"finetune-{task_name}-{seed}", f"finetuning on {task_name!r} with seed {seed}"
    return Job(
        name,
        title,
        Kind.TASK,
        out,
        inputs,
        settings | recipe_parts(recipe, "precision"),
        make,
        work=depth * task.finetuning.epochs,
        outside=lambda: marks_of(task, ("train", "dev"), recipe.source),
    )


def vectors(recipe: Recipe, language: str, blocks_folder: Path, tokenizer_folder: Path, out: Path) -> Job:
    """Computing static vectors of a language's pieces."""

    def make(folder: Path, _: "MetricsCallback") -> Artifact:
        from lingraft.stages.vectors import build_vectors

        return build_vectors(recipe, blocks_folder, tokenizer_folder, folder)

    inputs = {"blocks": blocks_folder, "tokenizer": tokenizer_folder}
    title = f"static vectors of {language!r}"
    return Job(f"vectors-{language}", title, Kind.VECTORS, out, inputs, {}, make)


def initialisation(
    recipe: Recipe,
    language: str,
    primary: Path,
    tokenizer_folder: Path,
    out: Path,
    blocks_folder: Path,
    source_vectors: Path | None = None,
) -> Job:
    """Writing a language's embeddings as they are before training; text counts only where its rows need it."""
    settings, inputs = recipe.adaptation, {"primary": primary, "tokenizer": tokenizer_folder}
    if settings.initialisation.needs_text:
        inputs |= {"blocks": blocks_folder} | ({"source_vectors": source_vectors} if source_vectors else {})

    def make(folder: Path, _: "MetricsCallback") -> Artifact:
        from lingraft.stages.initialise import initialise

        return initialise(recipe, primary, tokenizer_folder, folder, blocks_folder, source_vectors)

    decisive = {"initialisation": settings.initialisation, "seed": settings.seed}
    decisive |= {"system": recipe.system, "depth": settings.depth, **recipe_parts(recipe, "mini")}
    title = f"initial embeddings of {language!r}"
    return Job(
        f"initialise-{language}",
        title,
        Kind.EMBEDDINGS,
        out,
        inputs,
        decisive,
        make,
        work=0.0,
        outside=lambda: translation_hashes(recipe, language),
    )


def adaptation(
    recipe: Recipe,
    depth: int,
    language: str,
    primary: Path,
    mini: Path | None,
    blocks_folder: Path,
    tokenizer_folder: Path,
    out: Path,
    initial: Path | None = None,
) -> Job:
    """Learning a language's embeddings; `mini` is absent without a step 1b, `initial` where rows are drawn."""

    def make(folder: Path, watch: "MetricsCallback") -> Artifact:
        from lingraft.stages.adapt import adapt

        return adapt(recipe, primary, blocks_folder, tokenizer_folder, depth, folder, watch, mini=mini, initial=initial)

    inputs = {"primary": primary, "blocks": blocks_folder, "tokenizer": tokenizer_folder}
    settings = {"system": recipe.system, "depth": depth, **_training_settings(recipe, "adaptation")}
    return Job(
        f"adapt-{language}-{depth}",
        f"adaptation of {language!r} over {depth} layers",
        Kind.EMBEDDINGS,
        out,
        inputs | ({"mini": mini} if mini else {}) | ({"initial": initial} if initial else {}),
        settings,
        make,
        work=_work(recipe.steps_over(depth)[Stage.ADAPT].layers, recipe.adaptation),
    )


def source_evaluation(
    recipe: Recipe, primary: Path, tasks: Sequence[Path], text_folder: Path, blocks_folder: Path, out: Path
) -> Job:
    """Judging the primary and its tasks on the source language's test split."""

    def make(folder: Path, _: "MetricsCallback") -> Artifact:
        from lingraft.stages.evaluate import evaluate_source

        return evaluate_source(recipe, primary, tasks, text_folder, blocks_folder, folder)

    inputs = {"primary": primary, "text": text_folder, "blocks": blocks_folder, **_numbered(tasks)}
    return Job(
        "evaluate-source",
        f"evaluation of {recipe.source!r}",
        Kind.EVALUATION,
        out,
        inputs,
        _judging_settings(recipe),
        make,
        outside=lambda: _test_marks(recipe, recipe.source),
    )


def language_evaluation(
    recipe: Recipe,
    language: str,
    depth: int,
    primary: Path,
    mini: Path | None,
    tasks: Sequence[Path],
    embeddings: Path,
    text_folder: Path,
    blocks_folder: Path,
    out: Path,
    initial: Path | None = None,
    source_evaluation: Path | None = None,
) -> Job:
    """Judging a language's embeddings, swapped into the primary and its tasks, on its test split."""

    def make(folder: Path, _: "MetricsCallback") -> Artifact:
        from lingraft.stages.evaluate import evaluate_language

        return evaluate_language(
            recipe,
            primary,
            embeddings,
            tasks,
            text_folder,
            blocks_folder,
            folder,
            mini=mini,
            initial=initial,
            source_evaluation=source_evaluation,
        )

    inputs = {"primary": primary, "embeddings": embeddings, "text": text_folder, "blocks": blocks_folder}
    others = {"mini": mini, "initial": initial, "source_evaluation": source_evaluation}
    return Job(
        f"evaluate-{language}-{depth}",
        f"evaluation of {language!r} over {depth} layers",
        Kind.EVALUATION,
        out,
        inputs | _numbered(tasks) | {name: folder for name, folder in others.items() if folder},
        _judging_settings(recipe),
        make,
        outside=lambda: _test_marks(recipe, language) | parallel_hashes(recipe, language),
    )


def _numbered(tasks: Sequence[Path]) -> dict[str, Path]:
    return {f"task {number}": folder for number, folder in enumerate(tasks)}


def _judging_settings(recipe: Recipe) -> dict[str, Any]:
    """What scores depend on: texts that the endpoint is asked about, and names for people, change none."""
    no_matter: Any = {"examples": True, "label_names": True, "finetuning": True}
    tasks = [task.model_dump(mode="json", exclude=no_matter) for task in recipe.tasks]
    parts = ("source", "system", "encoder", "precision", "mini", "adaptation", "alignment")
    return recipe_parts(recipe, *parts) | {"tasks": tasks}


def _test_marks(recipe: Recipe, language: str) -> dict[str, Any]:
    """Marks of the test examples that tasks have in a language, where these are no input."""
    return {task.name: marks_of(task, ("test",), language) for task in recipe.tasks if task.covers(language)}


def recipe_parts(recipe: Recipe, *names: str) -> dict[str, Any]:
    """Sections and values of a recipe, as JSON holds them."""
    return recipe.model_dump(mode="json", include=set(names))


def _training_settings(recipe: Recipe, stage: str) -> dict[str, Any]:
    """What all masked language modelling depends on, with the settings of one stage."""
    return recipe_parts(recipe, "source", "encoder", "precision", stage)


def _work(layers: int, settings: "Training") -> float:
    """Proportional to compute, apart from the head's."""
    return layers * settings.steps * settings.batch_blocks
