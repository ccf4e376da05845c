"""Stages as jobs: each is a dataclass of its inputs, output and settings, and makes one artifact.

Commands, pipeline components, local runs, the paper's comparison and `add-language` all run a stage by its job. A job
imports PyTorch when it trains, so that a caller that needs only its provenance does not wait.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from typing_extensions import override

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import cached, code_version, has_shared_result, shared_result, shared_results
from lingraft.artifacts.failures import failure_reason
from lingraft.artifacts.files import atomic_folder
from lingraft.artifacts.manifest import Kind, artifact_fingerprint, read_manifest
from lingraft.artifacts.names import mini_name
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.console import say
from lingraft.data.bilingual_dictionary import judged_hashes, pair_hashes, translation_hashes
from lingraft.jobs.launchable import Input, InputList, Launchable, OptionalInput, Output, Role, none_if_empty
from lingraft.tasks.fingerprints import marks_of
from lingraft.training.schedule import MetricsCallback, ignore_metrics, read_curve

if TYPE_CHECKING:
    from lingraft.config.training import Training

_OF_TRAINING = ("source", "encoder", "precision")
"""Values of a recipe that every masked language modelling depends on."""
_OF_EVALUATION = (*_OF_TRAINING, "test_blocks", "system", "mini", "adaptation", "alignment")
"""Values of a recipe that scores depend on, beside the tasks."""
CHECKPOINTS = "checkpoints"
EMBEDDINGS = "embeddings"
"""Folders in the output of an adaptation with its curve: the embeddings at each checkpoint, and the final ones."""


class Job(Launchable, frozen=True):
    """A stage with its inputs, output and settings."""

    kind: ClassVar[Kind]
    sections: ClassVar[tuple[str, ...]] = ()
    """Sections and values of the recipe that the artifact depends on."""
    bears_failed_inputs: ClassVar[bool] = False
    """Whether the job has a result even if inputs failed."""
    name_format: ClassVar[str]
    title_format: ClassVar[str]
    failed_result: ClassVar[Any] = {}
    out: Output
    own_name: str = ""
    """Name in tracking, in place of that by `name_format`."""
    own_title: str = ""
    """Title for people, in place of that by `title_format`."""
    registered_as: str = ""
    """Name of the model in the registry that the artifact becomes a version of; empty: it is not registered."""

    @property
    def name(self) -> str:
        """Name in tracking, in one word."""
        return self.own_name or self.name_format.format(job=self)

    @property
    def title(self) -> str:
        """Title for people."""
        return self.own_title or self.title_format.format(job=self)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything beside inputs that the artifact depends on, as JSON values."""
        return self.recipe.model_dump(mode="json", include=set(self.sections))

    @property
    def inputs(self) -> dict[str, Path]:
        """Input folders by name."""
        numbered = {
            (f"{name} {number}" if number else name): folder
            for name, folders in self.folders(Role.INPUT).items()
            for number, folder in enumerate(folders)
        }
        return {name: folder for name, folder in numbered.items() if none_if_empty(folder)}

    @property
    def part(self) -> str:
        """Folder of the artifact within the output; empty if the output is the artifact."""
        return ""

    @property
    def work(self) -> float:
        """Amount of computation, comparable with jobs of the same kind."""
        return 1.0

    def outside(self) -> Mapping[str, Any]:
        """Return hashes of data that no input has, such as files of examples."""
        return {}

    def scores_of(self, made: Artifact) -> dict[str, float]:
        """Return the scores to show beside the artifact."""
        return {}

    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        """Run the stage, whatever was made before.

        Args:
            watch: called with every point of the learning curve.

        Raises:
            LingraftError: an input cannot be used, training fails, or the output cannot be written.
            Interruption: the process was asked to stop, and a checkpoint was written.
        """
        raise NotImplementedError

    @property
    def made(self) -> Path:
        """Folder of the artifact."""
        return self.out / self.part if self.part else self.out

    @property
    def provenance(self) -> dict[str, Any]:
        """Everything that the artifact depends on: settings, and the fingerprints of inputs.

        Raises:
            ArtifactError: an input does not exist.
        """
        inputs = {
            name: f"failed: {reason}" if (reason := failure_reason(folder)) else artifact_fingerprint(folder)
            for name, folder in self.inputs.items()
        }
        return {"settings": dict(self.settings), "inputs": inputs}

    @property
    def shared_provenance(self) -> dict[str, Any]:
        """Provenance of a result that all runs share: outside data, and the code, count too.

        Raises:
            ArtifactError: an input does not exist.
            TextError: outside data does not exist.
        """
        return {"kind": self.kind, **self.provenance, "outside": dict(self.outside()), "code": code_version()}

    def cached(self) -> contextlib.AbstractContextManager[Artifact | None]:
        """Hold the output, and yield its artifact if it was made before from the same; None if it is to be made now.

        Raises:
            ProvenanceMismatchError: the output was made from something else, or has no provenance.
            ArtifactError: an input does not exist, or the output cannot be written.
        """
        return cached(self.made, self.kind, self.provenance)

    def has_shared_result(self) -> bool:
        """Return whether `get_or_make` would find a shared result."""
        if not (where := shared_results()):
            return False
        return has_shared_result(where, self.kind, self.shared_provenance, self.part)

    @contextlib.contextmanager
    def shared(self, watch: MetricsCallback = ignore_metrics) -> Iterator[Self | None]:
        """Yield the job to run, whose output is shared where results are; None if the same job has made it before.

        At the end, the shared result is copied to the job's own output.

        Args:
            watch: called with every point of the learning curve of an artifact that was made before.

        Raises:
            ArtifactError: an output cannot be written.
        """
        if not (where := shared_results()):
            yield self
            return
        with shared_result(where, self.kind, self.shared_provenance, self.part) as (result, found):
            if found:
                say(f"{self.title}: made before from the same, taken from {result.parent}")
                for point in read_curve(found.folder):
                    watch(point)
            yield None if found else self.model_copy(update={"out": result})
            with atomic_folder(self.out) as copy:
                shutil.copytree(result, copy, dirs_exist_ok=True)

    def get_or_make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        """Run the stage, or copy the shared result of the same job.

        Args:
            watch: called with every point of the learning curve, also if the artifact was made before.

        Raises:
            LingraftError: an input cannot be used, training fails, or an output cannot be written.
            Interruption: the process was asked to stop, and a checkpoint was written.
        """
        with self.shared(watch) as missing:
            if missing:
                missing.make(watch)
        return Artifact.load(self.made, self.kind)


class LanguageDirs(NamedTuple):
    """Folders of a language's text, tokenizer and blocks."""

    text: Path
    tokenizer: Path
    blocks: Path

    @classmethod
    def under(cls, folder: Path, language: str) -> "LanguageDirs":
        """Return the folders of a language among those of others."""
        return cls(
            text=folder / "text" / language,
            tokenizer=folder / "tokenizer" / language,
            blocks=folder / "blocks" / language,
        )


SOURCE_RECIPE = "recipe.json"
"""File with the recipe beside the folders of a source that was brought from a registry."""


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
        """Return the folders of a source that has one folder for all of it."""
        return cls(
            primary=folder / "primary",
            tasks=folder / "tasks",
            evaluation=folder / "evaluation",
            mini=folder / "mini",
            vectors=folder / "vectors",
        )


class _LanguageJob(Job, frozen=True):
    """A job for one language, whose tag is that of an input unless it is given."""

    language: str = ""
    """Tag of the language; empty: that of `tagged_input`."""
    tagged_input: ClassVar[str] = "blocks"

    @property
    def tag(self) -> str:
        """Tag of the language.

        Raises:
            ArtifactError: it is not given, and the input does not exist.
        """
        return self.language or str(read_manifest(getattr(self, self.tagged_input)).language)


class TextJob(_LanguageJob, frozen=True):
    """Reads, cleans and splits a language's text. The text itself is unknown before, and not part of its provenance."""

    kind = Kind.TEXT
    name_format = "text-{job.tag}"
    title_format = "text of {job.tag!r}"
    sections = ("text", "split")

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"language": self.tag, **super().settings}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.data.text import prepare

        return prepare(self.recipe, self.tag, self.out)


class TokenizerJob(_LanguageJob, frozen=True):
    """Trains a language's tokenizer."""

    kind = Kind.TOKENIZER
    name_format = "tokenizer-{job.tag}"
    title_format = "tokenizer of {job.tag!r}"
    sections = ("tokenizer",)
    tagged_input = "text"
    text: Input

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.data.tokenizer.tokenizer import train_tokenizer

        return train_tokenizer(self.recipe, self.text, self.out)


class BlocksJob(_LanguageJob, frozen=True):
    """Packs a language's text into blocks of token ids."""

    kind = Kind.BLOCKS
    name_format = "blocks-{job.tag}"
    title_format = "blocks of {job.tag!r}"
    tagged_input = "text"
    text: Input
    tokenizer: Input

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"block_tokens": self.recipe.encoder.block_tokens}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.data.blocks import build

        return build(self.recipe, self.text, self.tokenizer, self.out)


def language_jobs(recipe: Recipe, language: str, folders: LanguageDirs, records_failure: bool = False) -> list[Job]:
    """Return the jobs that prepare a language: its text, its tokenizer, and its blocks."""
    common: dict[str, Any] = {"recipe": recipe, "language": language, "records_failure": records_failure}
    return [
        TextJob(out=folders.text, **common),
        TokenizerJob(text=folders.text, out=folders.tokenizer, **common),
        BlocksJob(text=folders.text, tokenizer=folders.tokenizer, out=folders.blocks, **common),
    ]


class VectorsJob(_LanguageJob, frozen=True):
    """Computes static vectors of a language's pieces."""

    kind = Kind.VECTORS
    name_format = "vectors-{job.tag}"
    title_format = "static vectors of {job.tag!r}"
    blocks: Input
    tokenizer: Input

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.vectors import build_vectors

        return build_vectors(self.recipe, self.blocks, self.tokenizer, self.out)


class PretrainingJob(Job, frozen=True):
    """Trains a primary from random weights, in the source language."""

    kind = Kind.PRIMARY
    name_format = "pretrain"
    title_format = "pretraining"
    sections = (*_OF_TRAINING, "pretraining")
    blocks: Input
    tokenizer: Input

    @property
    @override
    def work(self) -> float:
        return _work(self.recipe.primary_shape.layers, self.recipe.pretraining)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages import pretrain

        return pretrain.pretrain(self.recipe, self.blocks, self.tokenizer, self.out, watch)


class MiniBuildingJob(Job, frozen=True):
    """Trains the mini-model of a system that has a step 1b."""

    kind = Kind.MINI
    name_format = "build-mini"
    title_format = "mini-model"
    sections = (*_OF_TRAINING, "mini")
    primary: Input
    blocks: Input

    @classmethod
    def registered(cls, recipe: str, primary: Path, blocks: Path, out: Path) -> Self:
        """Return the job of a recipe in JSON whose mini-model is registered under the recipe's name for it."""
        settings = Recipe.parse(recipe)
        return cls(recipe=settings, primary=primary, blocks=blocks, out=out, registered_as=mini_name(settings))

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"depth": self.recipe.adaptation.depth, **super().settings}

    @property
    @override
    def work(self) -> float:
        step = self.recipe.steps_over(self.recipe.adaptation.depth)[Stage.BUILD_MINI]
        return _work(step.layers, self.recipe.require_mini())

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages import build_mini

        return build_mini.build_mini(self.recipe, self.primary, self.blocks, self.out, watch)


class FinetuningJob(Job, frozen=True):
    """Finetunes a primary, or its mini-model of some layers, on a task in the source language with one seed."""

    kind = Kind.TASK
    name_format = "finetune-{job.task}-{job.seed}"
    title_format = "finetuning on {job.task!r} with seed {job.seed}"
    sections = ("precision",)
    task: str
    seed: int
    primary: Input
    text: OptionalInput = None
    layers: int | None = None
    """Bottom layers of the primary that are finetuned; None: all."""

    @classmethod
    def of_id(cls, job: str, **fields: Any) -> Self:
        """Return the job with one of the ids of `lingraft.config.tasks.finetuning_ids`, `<task>/<seed>`."""
        task, seed = job.rsplit("/", 1)
        return cls(task=task, seed=int(seed), **fields)

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        irrelevant: Any = {
            "examples": True,
            "label_names": True,
            "languages": True,
            "test": True,
            "finetuning": {"seeds"},
        }
        task = self.recipe.task(self.task).model_dump(mode="json", exclude=irrelevant)
        layers = self.layers or self.recipe.primary_shape.layers
        return {"task": task, "layers": layers, "seed": self.seed, **super().settings}

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        """The primary, and the text if the task's examples are documents of it."""
        given = super().inputs
        return given if self.recipe.task(self.task).reads_text else {"primary": self.primary}

    @property
    @override
    def work(self) -> float:
        return (self.layers or self.recipe.primary_shape.layers) * self.recipe.task(self.task).finetuning.epochs

    @override
    def outside(self) -> Mapping[str, Any]:
        return marks_of(self.recipe.task(self.task), ("train", "dev"), self.recipe.source)

    @override
    def scores_of(self, made: Artifact) -> dict[str, float]:
        return {"dev_score": made.manifest.detail("dev_score", float)}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages import finetune

        return finetune.finetune(
            recipe=self.recipe,
            task=self.task,
            primary=self.primary,
            text=self.inputs.get("text"),
            seed=self.seed,
            out=self.out,
            watch=watch,
            layers=self.layers,
        )


class InitialisationJob(_LanguageJob, frozen=True):
    """Writes a language's embeddings as they are before training."""

    kind = Kind.EMBEDDINGS
    name_format = "initialise-{job.tag}"
    title_format = "initial embeddings of {job.tag!r}"
    sections = ("system", "mini")
    tagged_input = "tokenizer"
    primary: Input
    tokenizer: Input
    blocks: OptionalInput = None
    """Blocks of the language; only initialisation from text reads them."""
    source_vectors: OptionalInput = None
    """Static vectors of the source language; only initialisation from text reads them."""

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        adaptation = self.recipe.adaptation.model_dump(mode="json", include={"initialisation", "seed", "depth"})
        return {**adaptation, **super().settings}

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        """Primary and tokenizer, and everything else only for an initialisation from text."""
        given = super().inputs
        needed = given if self.recipe.adaptation.initialisation.needs_text else ("primary", "tokenizer")
        return {name: given[name] for name in needed}

    @property
    @override
    def work(self) -> float:
        return 0.0

    @override
    def outside(self) -> Mapping[str, Any]:
        return translation_hashes(self.recipe, self.tag)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.initialise import initialise

        with self._shared_vectors() as target_vectors:
            return initialise(
                recipe=self.recipe,
                primary=self.primary,
                tokenizer=self.tokenizer,
                out=self.out,
                blocks=none_if_empty(self.blocks),
                source_vectors=none_if_empty(self.source_vectors),
                target_vectors=target_vectors,
            )

    @contextlib.contextmanager
    def _shared_vectors(self) -> Iterator[Path | None]:
        """Yield a copy of the language's shared static vectors, made if missing; None without shared results."""
        blocks = none_if_empty(self.blocks)
        if blocks is None or not self.recipe.adaptation.initialisation.needs_text or not shared_results():
            yield None
            return
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "vectors"
            yield VectorsJob(recipe=self.recipe, blocks=blocks, tokenizer=self.tokenizer, out=out).get_or_make().folder


class AdaptationJob(_LanguageJob, frozen=True):
    """Learns a language's embeddings over the bottom layers of a primary, or over its mini-model."""

    kind = Kind.EMBEDDINGS
    name_format = "adapt-{job.tag}-{job.depth}"
    title_format = "adaptation of {job.tag!r} over {job.depth} layers"
    sections = (*_OF_TRAINING, "system", "adaptation")
    depth: int
    """Bottom layers of the primary."""
    primary: Input
    blocks: Input
    tokenizer: Input
    mini: OptionalInput = None
    """Mini-model of step 1b, where the system has one."""
    initial: OptionalInput = None
    """Embeddings to start from; None: they are drawn by the recipe's seed."""
    shallower_minis: InputList = ()
    """Mini-models that a progressive adaptation begins on, from the shallowest on."""
    checkpoints: Path | None = None
    """Folder for the embeddings along the way."""
    has_curve: bool = False
    """Whether the output has both the embeddings along the way and the final ones, each in a folder of its own."""

    @property
    @override
    def part(self) -> str:
        return EMBEDDINGS if self.has_curve else ""

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"depth": self.depth, **super().settings}

    @property
    @override
    def work(self) -> float:
        return _work(self.recipe.steps_over(self.depth)[Stage.ADAPT].layers, self.recipe.adaptation)

    @override
    def outside(self) -> Mapping[str, Any]:
        return pair_hashes(self.recipe, self.tag)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.adapt import adapt

        mini = none_if_empty(self.mini)
        return adapt(
            recipe=self.recipe,
            primary=self.primary,
            blocks=self.blocks,
            tokenizer=self.tokenizer,
            depth=self.depth,
            out=self.out / EMBEDDINGS if self.has_curve else self.out,
            watch=watch,
            minis=(*self.shallower_minis, mini) if mini else self.shallower_minis,
            checkpoints=self.out / CHECKPOINTS if self.has_curve else self.checkpoints,
            initial=none_if_empty(self.initial),
        )


class SourceEvaluationJob(Job, frozen=True):
    """Evaluates a primary and its finetuned tasks on the source language's test split."""

    kind = Kind.EVALUATION
    name_format = "evaluate-source"
    title_format = "evaluation of the source language"
    sections = _OF_EVALUATION
    primary: Input
    tasks: InputList = ()
    """One folder for each task and seed."""
    text: Input
    blocks: Input

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"tasks": _evaluated_tasks(self.recipe), **super().settings}

    @override
    def outside(self) -> Mapping[str, Any]:
        return _test_marks(self.recipe, self.recipe.source)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.evaluate import evaluate_source

        return evaluate_source(
            recipe=self.recipe,
            primary=self.primary,
            tasks=self.tasks,
            text=self.text,
            blocks=self.blocks,
            out=self.out,
        )


class LanguageEvaluationJob(_LanguageJob, frozen=True):
    """Evaluates a language's embeddings on its test split: masked accuracy, alignment and zero-shot scores."""

    kind = Kind.EVALUATION
    name_format = "evaluate-{job.tag}-{job.depth}"
    title_format = "evaluation of {job.tag!r}"
    sections = _OF_EVALUATION
    tagged_input = "embeddings"
    primary: Input
    embeddings: Input
    tasks: InputList = ()
    """One folder for each task and seed."""
    text: Input
    blocks: Input
    mini: OptionalInput = None
    initial: OptionalInput = None
    source_evaluation: OptionalInput = None
    """Evaluation of the source language; None: alignment is not measured."""

    @property
    def depth(self) -> int:
        """Bottom layers of the primary that the embeddings were learned over."""
        return int(read_manifest(self.embeddings).detail("depth", int))

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"tasks": _evaluated_tasks(self.recipe), **super().settings}

    @override
    def outside(self) -> Mapping[str, Any]:
        return {**_test_marks(self.recipe, self.tag), **judged_hashes(self.recipe, self.tag)}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.evaluate import evaluate_language

        return evaluate_language(
            recipe=self.recipe,
            primary=self.primary,
            embeddings=self.embeddings,
            tasks=self.tasks,
            text=self.text,
            blocks=self.blocks,
            out=self.out,
            mini=none_if_empty(self.mini),
            initial=none_if_empty(self.initial),
            source_evaluation=none_if_empty(self.source_evaluation),
        )


def _evaluated_tasks(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the settings of tasks that scores depend on: neither questions to an endpoint nor names for people."""
    irrelevant: Any = {"examples": True, "label_names": True, "finetuning": True}
    return [task.model_dump(mode="json", exclude=irrelevant) for task in recipe.tasks]


def _test_marks(recipe: Recipe, language: str) -> dict[str, Any]:
    """Hashes of the test examples in a language, of tasks that have examples of their own."""
    return {task.name: marks_of(task, ("test",), language) for task in recipe.tasks_in(language)}


def _work(layers: int, settings: "Training") -> float:
    """Number that is proportional to computation, apart from that of the head."""
    return layers * settings.steps * settings.batch_blocks
