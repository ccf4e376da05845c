"""A small project in a registry: artifacts of a few numbers, with evaluations whose scores the test chooses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typer.testing import CliRunner

from lingraft import tracking
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.artifacts.names import bundle_name, embeddings_name, primary_name, task_name
from lingraft.cli import app
from lingraft.config.gate import Gate
from lingraft.config.recipe import Recipe
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.stages import results
from lingraft.stages.results import MASKED, MASKED_INITIAL, LanguageResult, MaskedScores
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tracking.evidence import EVALUATION, EVALUATION_RUN, GATE
from lingraft.tracking.promotion import AllowedChanges, Verdict, promote, roll_back
from lingraft.tracking.tags import PARITY

RECIPE = Recipe.load(Path(__file__).parents[2] / "tiny.toml")
BLOCKS, EACH = 300, 20


def found(share: float) -> ItemCounts:
    return ItemCounts.of(np.where(np.arange(BLOCKS) < share * BLOCKS, EACH, 0), np.full(BLOCKS, EACH))


def speaking(*languages: str) -> dict[str, object]:
    tokenizer = {"file": "tokenizer.json", "special_ids": DEFAULT_SPECIAL_IDS._asdict()}
    return {"languages": [*languages], "tokenizers": dict.fromkeys(languages, tokenizer)}


def parity_of(languages: Iterable[str]) -> dict[str, object]:
    """How near a bundle's answers are to PyTorch's, as its export would record it."""
    return {"fp32": {language: {"difference": 1e-6} for language in languages}}


def lingraft(*arguments: object) -> str:
    ended = CliRunner().invoke(app, ["registry", *map(str, arguments)], catch_exceptions=False)
    return ended.stdout


@dataclass(frozen=True)
class Project:
    recipe: Recipe
    folder: Path
    run: str

    @classmethod
    def begin(cls, name: str, folder: Path) -> "Project":
        recipe = RECIPE.model_copy(update={"name": name})
        return cls(recipe, folder, tracking.open_run(recipe, "language"))

    @property
    def embeddings(self) -> str:
        return embeddings_name(self.recipe, "de")

    @property
    def primary(self) -> str:
        return primary_name(self.recipe)

    @property
    def mark(self) -> str:
        return Artifact.load(self.folder / "primary-1.0", Kind.PRIMARY).fingerprint

    def make(self, kind: Kind, value: float, **facts: object) -> Artifact:
        """A small artifact; another value, another fingerprint. The same is made once."""
        folder = self.folder / f"{kind}-{value}"
        if not folder.exists():
            with artifact.create(folder, kind) as draft:
                draft.tensors("vocabulary", {"table_VD": torch.full((4, 3), value)})
                draft.facts = {"cost": Cost(steps=10, tokens=100, flops=1.08e17, elapsed_s=2.0), **facts}
        return Artifact.load(folder, kind)

    def register(self, name: str, made: Artifact, **tags: object) -> int:
        with tracking.stage(self.run, f"register-{name}") as stage:
            return tracking.register(name, made.folder, made.manifest.kind, stage, tags)

    def register_primary(self, value: float = 1.0) -> tuple[int, str]:
        made = self.make(Kind.PRIMARY, value, language="en")
        return self.register(self.primary, made), made.fingerprint

    @property
    def bundle(self) -> str:
        return bundle_name(self.recipe, "topic")

    def register_bundle(
        self, value: float, hashes: dict[str, str], parity: dict[str, object] | None = None, **details: object
    ) -> int:
        """A bundle of English and the languages whose embeddings are among the hashes."""
        languages = ["en", *(name.removeprefix("embeddings-") for name in hashes if name.startswith("embeddings-"))]
        known = {"task": "topic", "kind": "texts", "labels": ["a", "b"], "precisions": [], **speaking(*languages)}
        known |= {"shape": self.recipe.primary_shape.model_dump(mode="json"), "settings": None}
        facts = {"aligned_with": hashes["primary"], "data_hashes": hashes, "language": "en"}
        facts["record"] = {"parity": parity or parity_of(languages)}
        return self.register(self.bundle, self.make(Kind.BUNDLE, value, details=known | details, **facts))

    def export(self, primary: str, embeddings: Sequence[Path]) -> Artifact:
        """A bundle of a few numbers, of English and of embeddings that are made for a primary of this fingerprint."""
        learned = [Artifact.load(folder, Kind.EMBEDDINGS) for folder in embeddings]
        languages = {"en": primary, **{str(each.manifest.language): each.fingerprint for each in learned}}
        folder = self.folder / f"exported-{len(list(self.folder.glob('exported-*')))}"
        with artifact.create(folder, Kind.BUNDLE) as draft:
            draft.tensors("body", {"bias": torch.full((2,), float(int(primary[:6], 16)))})
            (draft.folder / "body.onnx").write_bytes(b"a graph")
            for language, mark in languages.items():
                (draft.folder / language).mkdir()
                draft.tensors(f"{language}/table", {"table_VD": torch.full((2, 2), float(int(mark[:6], 16)))})
            hashes = {f"embeddings-{each.manifest.language}": each.fingerprint for each in learned}
            shape = RECIPE.primary_shape.model_dump(mode="json")
            details = {"task": "topic", "kind": "texts", "labels": ["a", "b"], "settings": None}
            details |= {"shape": shape, "tables": "float32"}
            draft.facts = {
                "language": "en",
                "aligned_with": primary,
                "data_hashes": {"primary": primary, **hashes},
                "details": details | {"precisions": ["fp32"], **speaking(*languages)},
                "record": {"parity": parity_of(languages)},
            }
        return Artifact.load(folder, Kind.BUNDLE)

    def register_task(self, primary: str, task: str, kind: str = "texts") -> Artifact:
        details = {"task": task, "settings": {"kind": kind}, "metric": "accuracy", "labels": []}
        value = 100.0 + len(list(self.folder.glob("task-*")))  # as no other artifact of a test
        made = self.make(Kind.TASK, value, aligned_with=primary, language="en", details=details)
        self.register(task_name(self.recipe, task), made)
        return made

    def register_embeddings(
        self,
        primary: str,
        value: float,
        masked: float,
        blocks: str = "b1",
        tasks: Sequence[str] = ("topic",),
        language: str = "de",
    ) -> int:
        made = self.make(
            Kind.EMBEDDINGS,
            value,
            language=language,
            aligned_with=primary,
            tokenizer_hash="t1",
            data_hashes={"blocks": blocks},
            recipe={"steps": 10},
            details={"system": "MINIJOINT", "depth": 2},
        )
        return self.register_learned(made, masked, blocks, tasks)

    def register_learned(
        self, made: Artifact, masked: float, blocks: str = "b1", tasks: Sequence[str] = ("topic",)
    ) -> int:
        """Register embeddings that are there with this masked accuracy on their primary."""
        language = str(made.manifest.language)
        judged = self._evaluation(made, str(made.manifest.aligned_with), masked, blocks)
        with tracking.stage(self.run, f"register-{language}") as stage:
            stage.log_artifact(judged, EVALUATION)
            facts: dict[str, object] = {EVALUATION_RUN: stage.run_id, GATE: Gate().model_dump_json()}
            facts |= {EVALUATION: judged.fingerprint}
            facts |= {f"{PARITY}{task}": 1e-6 for task in tasks}
            name = embeddings_name(self.recipe, language)
            return tracking.register(name, made.folder, Kind.EMBEDDINGS, stage, facts)

    def accept(self, *embeddings: Path) -> None:
        """Have the gate accept embeddings, of one language each or ever better ones."""
        for number, folder in enumerate(embeddings, start=1):
            made = Artifact.load(folder, Kind.EMBEDDINGS)
            version = self.register_learned(made, 0.1 + 0.1 * number)
            assert self.promote(embeddings_name(self.recipe, str(made.manifest.language)), version).passed

    def judged(self, value: float, primary: str, masked: float, blocks: str) -> Path:
        made = Artifact.load(self.folder / f"embeddings-{value}", Kind.EMBEDDINGS)
        return self._evaluation(made, primary, masked, blocks).folder

    def _evaluation(self, made: Artifact, primary: str, masked: float, blocks: str) -> Artifact:
        folder = self.folder / f"evaluation-{made.fingerprint[:12]}-{masked}-{blocks}"
        if folder.exists():
            return Artifact.load(folder, Kind.EVALUATION)
        result = LanguageResult(
            language=str(made.manifest.language),
            primary=primary,
            embeddings=made.fingerprint,
            system="MINIJOINT",
            depth=2,
            layers=3,
            learned_over=2,
            vocabulary=4,
            overlap=1,
            masked=MaskedScores(mini=0.1, primary=masked, mini_initial=0.1, primary_initial=0.05),
            tasks=(),
            cost=Cost(),
            whole_flops=1.0,
            history=[],
            precision="fp32",
        )
        items = {MASKED: found(masked), MASKED_INITIAL: found(0.05)}
        hashes = {"primary": primary, "embeddings": made.fingerprint, "blocks": blocks}
        return results.save(result, folder, {"aligned_with": primary, "data_hashes": hashes}, items)

    def register_rest(self) -> None:
        """Register a task of the primary, and promote a bundle of both with the second German."""
        mark = self.mark
        task, bundle = self.register_task(mark, "topic"), self.bundle
        german = Artifact.load(self.folder / "embeddings-2.0", Kind.EMBEDDINGS).fingerprint
        hashes = {"primary": mark, "task": task.fingerprint, "embeddings-de": german}
        self.promote(bundle, self.register_bundle(6.0, hashes))

    def promote(self, name: str, number: int, by: str = "a test", dry_run: bool = False, **allowed: Any) -> Verdict:
        return promote(tracking.connect(), name, number, by, dry_run=dry_run, allowed=AllowedChanges(**allowed))

    def roll_back(self, name: str, **allowed: Any) -> Verdict:
        return roll_back(tracking.connect(), name, "a test", allowed=AllowedChanges(**allowed))

    def champion(self, name: str, alias: str = tracking.CHAMPION) -> int | None:
        from lingraft.tracking.versions import version_by_alias

        version = version_by_alias(tracking.connect(), name, alias)
        return version.number if version else None
