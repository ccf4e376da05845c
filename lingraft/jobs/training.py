"""Jobs that train: static vectors, primary, mini-model, finetuned tasks, and a language's embeddings."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import RESULTS_VARIABLE
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import mini_name
from lingraft.config.recipe import Recipe
from lingraft.data.bilingual_dictionary import pair_hashes, translation_hashes
from lingraft.data.text import content_hashes
from lingraft.jobs.job import OF_TRAINING, Job, LanguageJob
from lingraft.jobs.launchable import Input, OptionalInput
from lingraft.tasks.fingerprints import marks_of
from lingraft.training.schedule import MetricsCallback, ignore_metrics

CHECKPOINTS = "checkpoints"
EMBEDDINGS = "embeddings"
"""Folders in the output of an adaptation with its curve: the embeddings at each checkpoint, and the final ones."""


class VectorsJob(LanguageJob, frozen=True):
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
    sections = (*OF_TRAINING, "pretraining")
    blocks: Input
    tokenizer: Input

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages import pretrain

        return pretrain.pretrain(self.recipe, self.blocks, self.tokenizer, self.out, watch)


class MiniBuildingJob(Job, frozen=True):
    """Trains the mini-model of a system that has a step 1b."""

    kind = Kind.MINI
    name_format = "build-mini"
    title_format = "mini-model"
    sections = (*OF_TRAINING, "mini")
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
        tokens = {"block_tokens": self.recipe.encoder.block_tokens}
        return {"task": task, "layers": layers, "seed": self.seed, **tokens, **super().settings}

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        """The primary, and the text if the task's examples are documents of it."""
        given = super().inputs
        return given if self.recipe.task(self.task).reads_text else {"primary": self.primary}

    @override
    def outside(self) -> Mapping[str, Any]:
        return marks_of(self.recipe.task(self.task), ("train", "dev"), self.recipe.source.language)

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


class InitialisationJob(LanguageJob, frozen=True):
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
        found = {**adaptation, **super().settings}
        if self.recipe.mines(self.tag):
            paths = {"text": {"path", "paths"}}  # files count by their content
            found["mined"] = self.recipe.model_dump(mode="json", include={"text", "split"}, exclude=paths)
        return found

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        """Primary and tokenizer, the blocks for an initialisation from text, and vectors where they align rows."""
        given = super().inputs
        needed = given if self.recipe.adaptation.initialisation.needs_text else ("primary", "tokenizer")
        return {name: given[name] for name in needed}

    @override
    def outside(self) -> Mapping[str, Any]:
        languages = (self.recipe.source.language, self.tag) if self.recipe.mines(self.tag) else ()
        texts = {f"text {language}": content_hashes(self.recipe.text, language) for language in languages}
        return {**translation_hashes(self.recipe, self.tag), **texts}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.initialise import initialise

        with self._shared_vectors() as target_vectors:
            return initialise(
                recipe=self.recipe,
                primary=self.primary,
                tokenizer=self.tokenizer,
                out=self.out,
                blocks=self.blocks,
                source_vectors=self.source_vectors,
                target_vectors=target_vectors,
            )

    @contextlib.contextmanager
    def _shared_vectors(self) -> Iterator[Path | None]:
        """Yield a copy of the language's shared static vectors, made if missing; None without shared results."""
        if self.blocks is None or not self.recipe.needs_vectors or not os.environ.get(RESULTS_VARIABLE):
            yield None
            return
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "vectors"
            made = VectorsJob(recipe=self.recipe, blocks=self.blocks, tokenizer=self.tokenizer, out=out).get_or_make()
            yield made.folder


class AdaptationJob(LanguageJob, frozen=True):
    """Learns a language's embeddings over the bottom layers of a primary, or over its mini-model."""

    kind = Kind.EMBEDDINGS
    name_format = "adapt-{job.tag}-{job.depth}"
    title_format = "adaptation of {job.tag!r} over {job.depth} layers"
    sections = (*OF_TRAINING, "system", "adaptation")
    depth: int
    """Bottom layers of the primary."""
    primary: Input
    blocks: Input
    tokenizer: Input
    mini: OptionalInput = None
    """Mini-model of step 1b, where the system has one."""
    initial: OptionalInput = None
    """Embeddings to start from; None: they are drawn by the recipe's seed."""
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

    @override
    def outside(self) -> Mapping[str, Any]:
        return pair_hashes(self.recipe, self.tag)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.adapt import adapt

        return adapt(
            recipe=self.recipe,
            primary=self.primary,
            blocks=self.blocks,
            tokenizer=self.tokenizer,
            depth=self.depth,
            out=self.out / EMBEDDINGS if self.has_curve else self.out,
            watch=watch,
            mini=self.mini,
            checkpoints=self.out / CHECKPOINTS if self.has_curve else self.checkpoints,
            initial=self.initial,
        )
