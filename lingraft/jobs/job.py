"""A stage as a job: a dataclass of its inputs, output and settings, which makes one artifact.

Commands, pipeline components, local runs, the paper's comparison and `add-language` all run a stage by its job. A job
imports PyTorch when it trains, so that a caller that needs only its provenance does not wait.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import RESULTS_VARIABLE, cached, shared_result
from lingraft.artifacts.failures import failure_reason
from lingraft.artifacts.files import atomic_folder
from lingraft.artifacts.manifest import Kind, artifact_fingerprint, read_manifest
from lingraft.console import say
from lingraft.jobs.launchable import Launchable, Output, Role
from lingraft.training.schedule import MetricsCallback, ignore_metrics, read_curve

OF_TRAINING = ("source", "encoder", "precision")
"""Values of a recipe that every masked language modelling depends on."""


class Job(Launchable, frozen=True):
    """A stage with its inputs, output and settings."""

    kind: ClassVar[Kind]
    sections: ClassVar[tuple[str, ...]] = ()
    """Sections and values of the recipe that the artifact depends on."""
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
        found = self.recipe.model_dump(mode="json", include=set(self.sections))
        # The model that a primary was made from is an input, wherever it lies.
        return found | ({"source": self.recipe.source.language} if "source" in found else {})

    @property
    def inputs(self) -> dict[str, Path]:
        """Input folders by name."""
        return {
            (f"{name} {number}" if number else name): folder
            for name, folders in self.folders(Role.INPUT).items()
            for number, folder in enumerate(folders)
        }

    @property
    def part(self) -> str:
        """Folder of the artifact within the output; empty if the output is the artifact."""
        return ""

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
        """
        raise NotImplementedError

    @property
    def made(self) -> Path:
        """Folder of the artifact."""
        return self.out / self.part if self.part else self.out

    @property
    def provenance(self) -> dict[str, Any]:
        """Everything that the artifact depends on: settings, the fingerprints of inputs, and hashes of outside data."""
        inputs = {
            name: f"failed: {reason}" if (reason := failure_reason(folder)) else artifact_fingerprint(folder)
            for name, folder in self.inputs.items()
        }
        outside = dict(self.outside())
        return {"settings": dict(self.settings), "inputs": inputs} | ({"outside": outside} if outside else {})

    def cached(self) -> contextlib.AbstractContextManager[Artifact | None]:
        """Hold the output, and yield its artifact if it was made before from the same; None if it is to be made now."""
        return cached(self.made, self.kind, self.provenance)

    @contextlib.contextmanager
    def shared(self, watch: MetricsCallback = ignore_metrics) -> Iterator[Self | None]:
        """Yield the job to run, whose output is shared where results are; None if the same job has made it before.

        At the end, the shared result is copied to the job's own output.

        Args:
            watch: called with every point of the learning curve of an artifact that was made before.
        """
        if not (where := os.environ.get(RESULTS_VARIABLE)):
            yield self
            return
        with shared_result(where, self.kind, self.provenance, self.part) as (result, found):
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
        """
        with self.shared(watch) as missing:
            if missing:
                missing.make(watch)
        return Artifact.load(self.made, self.kind)


class LanguageJob(Job, frozen=True):
    """A job for one language, whose tag is that of an input unless it is given."""

    language: str = ""
    """Tag of the language; empty: that of `tagged_input`."""
    tagged_input: ClassVar[str] = "blocks"

    @property
    def tag(self) -> str:
        """Tag of the language."""
        return self.language or str(read_manifest(getattr(self, self.tagged_input)).language)
