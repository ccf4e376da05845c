"""What the language lane hands on: checkpoints for transformers, and ONNX bundles for the endpoint."""

from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.cache import make_if_absent
from lingraft.console import say
from lingraft.errors import MissingExtraError
from lingraft.huggingface.export import export_hf
from lingraft.new_language.stage import counted, run_stage
from lingraft.new_language.summary import MASKED_LM
from lingraft.new_language.tasks import LanguageTask

CHECKPOINT = "checkpoint"
"""Kind of the stage that makes one, for its progress."""


@dataclass(frozen=True)
class Exports:
    """A judged language, to be exported with every task."""

    primary: Path
    tasks: dict[str, LanguageTask]
    learned: Artifact
    """Its embeddings."""
    scores: Artifact
    """Their evaluation."""
    data: tuple[Path, Path]
    """Text that they were learned from, and its blocks."""
    out: Path

    def checkpoints(self) -> dict[str, Path]:
        """Folders for transformers by task, and one with the MLM head.

        Raises:
            ExportError: transformers computes something else.
            ProvenanceMismatchError: one is there that was made from something else.
        """
        tasks: dict[str, LanguageTask | None] = {MASKED_LM: None} | self.tasks
        return {name: self._checkpoint(self.out / "hf" / name, task) for name, task in tasks.items()}

    def _checkpoint(self, folder: Path, task: LanguageTask | None) -> Path:
        made_from = self._marks(task) | {"evaluation": self.scores.fingerprint}
        body = task.folders[task.best] if task else None

        calls: list[object] = []

        def make() -> None:
            calls.append(export_hf(self.primary, folder, self.learned.folder, body, self.scores.folder, self.data))

        with counted(CHECKPOINT, calls):
            make_if_absent(folder, made_from, make)
        say(f"checkpoint: {folder}")
        return folder

    def bundles(self) -> tuple[dict[str, Path], dict[str, str]]:
        """Bundles by task, and why there is none of the others.

        Raises:
            ExportError: ONNX Runtime computes something else.
            ProvenanceMismatchError: one is there that was made from something else.
        """
        bundles, reasons = {}, {}
        for name, task in self.tasks.items():
            try:
                bundles[name] = self._bundle(name, task)
            except MissingExtraError as error:
                reasons[f"bundled for the endpoint, task {name!r}"] = str(error)
        return bundles, reasons

    def _bundle(self, name: str, task: LanguageTask) -> Path:
        def make(out: Path) -> None:
            from lingraft.export import export_bundle

            export_bundle(self.primary, task.folders[task.best], [self.learned.folder], out)

        return run_stage(self.out / "bundle" / name, Kind.BUNDLE, self._marks(task), make).folder

    def _marks(self, task: LanguageTask | None) -> dict[str, str | None]:
        marks = {"primary": self.learned.manifest.aligned_with, "embeddings": self.learned.fingerprint}
        return marks | ({"task": task.mark} if task else {})
