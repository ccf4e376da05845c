"""Training data and cost of a model, traced by fingerprints: nothing is taken on trust."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind, Manifest, read_manifest
from lingraft.data.splits import SplitName
from lingraft.errors import ArtifactError
from lingraft.tables import markdown_table

NOT_STATED = "not stated"


class TrainingText(NamedTuple):
    """A text artifact that a model was trained on."""

    language: str
    origin: str
    """Kind of the source, and its name where it has one that is no path of a machine."""
    documents: int
    """Number of documents of the training split."""
    characters: int
    fingerprint: str
    licence: str


class TrainingData(NamedTuple):
    """Texts that some trainings are known to have used."""

    texts: list[TrainingText]
    fingerprints: frozenset[str]
    """Fingerprints of the texts, and of blocks that were packed from them."""

    def covers(self, training: Manifest) -> bool:
        """Return whether the text of a training is among these texts."""
        return not self.fingerprints.isdisjoint(training.data_hashes.values())


def trace_training_data(manifests: Iterable[Manifest], folders: Sequence[Path]) -> TrainingData:
    """Return the texts among `folders`, each traced to a training; blocks lead from a training to its text."""
    known = {mark for manifest in manifests for mark in manifest.data_hashes.values()}
    opened = [_load_text_or_blocks(folder) for folder in folders]
    for found in opened:
        if found.manifest.kind is Kind.BLOCKS and found.fingerprint in known:
            known |= set(found.manifest.data_hashes.values())
    for found in opened:
        if found.fingerprint not in known:
            raise ArtifactError(
                f"nothing that is exported was trained on {found.folder} ({found.fingerprint[:12]}). Give the text it "
                "was trained on, and the blocks that were packed from that text."
            )
    texts = {found.fingerprint: _text(found) for found in opened if found.manifest.kind is Kind.TEXT}
    marks = {found.fingerprint for found in opened if not texts.keys().isdisjoint(found.manifest.data_hashes.values())}
    return TrainingData(list(texts.values()), frozenset(marks | texts.keys()))


def _load_text_or_blocks(folder: Path) -> Artifact:
    kind = read_manifest(folder).kind
    return Artifact.load(folder, kind if kind is Kind.BLOCKS else Kind.TEXT)


def _text(found: Artifact) -> TrainingText:
    manifest = found.manifest
    source = manifest.recipe.get("text", {})
    named = [str(source[key]) for key in ("kind", "dataset", "configuration") if source.get(key)]
    return TrainingText(
        language=str(manifest.language),
        origin=" ".join(named) or NOT_STATED,
        documents=manifest.detail("documents", dict[SplitName, int]).get("train", 0),
        characters=manifest.detail("characters", dict[SplitName, int]).get("train", 0),
        fingerprint=found.fingerprint,
        licence=str(source.get("licence") or NOT_STATED),
    )


def cost_table(costs: Mapping[str, Cost]) -> str:
    """Format the costs of trainings, by what was trained, as a table in Markdown."""
    return markdown_table(
        ("trained", "updates", "tokens", "FLOPs", "seconds"), [(name, *_cells(c)) for name, c in costs.items()]
    )


def _cells(cost: Cost) -> tuple[str, ...]:
    if not cost.steps:
        return (NOT_STATED,) * 4
    return f"{cost.steps:,}", f"{cost.tokens:,}", f"{cost.flops:.3g}", f"{cost.elapsed_s:,.0f}"
