"""Models that are served: bundles of random weights in many languages, and the same models each by itself.

Each task is one body, each language one table that all tasks share. A language's tokenizer has a file of its own, as
trained ones do, with the pieces of all: nothing is shared that would differ in earnest.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx_ir
import torch

from benchmarks.serving import words
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import TABLE_FORMATS, Precision, TableFormat
from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.export.bundling import body_facts, language_facts
from lingraft.export.exported_model import ExportedModel, write_bodies
from lingraft.export.language import ExportedLanguage, write_language
from lingraft.export.parity import compare_languages
from lingraft.export.standalone import write_standalone_model
from lingraft.model.encoder import Encoder
from lingraft.model.swap import make_vocabulary
from lingraft.tasks.classification import Classifier
from lingraft.tasks.tagging import Tagger

BASE = EncoderShape(width=768, layers=12, attention_heads=12, mlm_heads=(12,), block_tokens=512)
"""RoBERTa-base."""
LABELS = ["against", "neutral", "with"]
TAGS = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
TOPIC, NAMES = "topic", "names"
LANGUAGE_STD = 0.02
"""Standard deviation of a random table's entries."""


def language_tags(count: int) -> list[str]:
    """Return tags of languages that do not exist."""
    return [f"x{chr(ord('a') + place // 26)}{chr(ord('a') + place % 26)}" for place in range(count)]


class Plan(NamedTuple):
    """How much is served."""

    shape: EncoderShape
    languages: int
    vocabulary: int
    tasks: int = 2

    @property
    def tags(self) -> list[str]:
        """Languages that are served from the beginning."""
        return language_tags(self.languages)

    @property
    def task_names(self) -> list[str]:
        """Tasks: one that classifies texts, and one that tags their tokens."""
        return [TOPIC, NAMES][: self.tasks]

    def __str__(self) -> str:
        shape = f"{self.shape.layers} x {self.shape.width}"
        kind = ", pre-norm" if self.shape.family.pre_norm else ""
        return (
            f"{self.languages} languages x {self.tasks} tasks, {self.vocabulary:,} rows each, bodies of {shape}{kind}"
        )


class Models(NamedTuple):
    """Folders of the models that are measured."""

    folder: Path
    plan: Plan

    def bundle(self, tables: TableFormat, task: str) -> Path:
        """A task's bundle with all languages."""
        return self.folder / tables / task

    def bundles(self, tables: TableFormat) -> list[Path]:
        """Return the bundles of all tasks."""
        return [self.bundle(tables, task) for task in self.plan.task_names]

    def separate(self, task: str) -> Path:
        """A model that has all its weights in its own file, the first language's table among them."""
        return self.folder / "separate" / f"{task}.onnx"

    @property
    def tokenizer(self) -> Tokenizer:
        """Its pieces are those of all languages."""
        return Tokenizer.load(self.folder / "pieces" / "tokenizer")


def make(plan: Plan, folder: Path) -> Models:
    """Write everything that is not there yet."""
    models = Models(folder, plan)
    if not (folder / "pieces" / "tokenizer").exists():
        words.train(plan.vocabulary, folder / "pieces")
    for task in plan.task_names:
        exported = _exported(plan.shape, task)
        for tables in TABLE_FORMATS:
            _bundles(models, exported, tables)
        if not models.separate(task).exists():
            _separate(models, exported)
    return models


def _exported(shape: EncoderShape, task: str) -> ExportedModel:
    torch.manual_seed(len(task))
    if task == TOPIC:
        return ExportedModel(TOPIC, "texts", Classifier(Encoder(shape, 0), len(LABELS)).eval(), LABELS, None)
    return ExportedModel(NAMES, "tags", Tagger(Encoder(shape, 0), len(TAGS)).eval(), TAGS, None)


def _bundles(models: Models, exported: ExportedModel, tables: TableFormat) -> None:
    """A task's bundle with all languages in one number format, which shares what other bundles have by hard links."""
    out, first = models.bundle(tables, exported.name), models.bundle(TABLE_FORMATS[0], exported.name)
    if out.exists():
        return
    other = models.bundle(tables, models.plan.task_names[0])
    bodies, known = (Artifact.open(each, Kind.BUNDLE) if each.exists() else None for each in (first, other))
    described: dict[str, Any] = {}
    with artifact.create(out, Kind.BUNDLE) as draft:
        if bodies:
            draft.share(bodies, [name for name in bodies.manifest.files if "/" not in name])
        else:
            write_bodies(draft, exported, ["fp32"])
        for brought in _languages(models, models.plan.tags, tables):
            write_language(draft, brought, exported)
            described[brought.tag] = brought.tokenizer_facts()
            if known:
                _share_table(draft, known, brought.tag)
        parity = bodies.manifest.record["parity"] if bodies else _parity(draft, exported, models, tables)
        draft.facts = {
            "language": models.plan.tags[0],
            "aligned_with": "random weights",
            "details": body_facts(exported) | language_facts(described, parity) | {"tables": tables},
            "record": {"parity": parity},
        }


def _parity(draft: Draft, exported: ExportedModel, models: Models, tables: TableFormat) -> dict[Precision, Any]:
    """How near a body comes to PyTorch: in one language, since the body is the same for all."""
    first = [*_languages(models, models.plan.tags[:1], tables)]
    return {"fp32": compare_languages(draft.folder, exported, first, "fp32")}


def _share_table(draft: Draft, known: Artifact, language: str) -> None:
    name = f"{language}/table.safetensors"
    (draft.folder / name).unlink()
    draft.share(known, [name])


def _languages(models: Models, tags: list[str], tables: TableFormat) -> Iterator[ExportedLanguage]:
    """Languages with tables of their own, made one after the other."""
    for tag in tags:
        generator = torch.Generator().manual_seed(int.from_bytes(tag.encode()) % 2**32)
        table_VD = torch.empty(models.plan.vocabulary, models.plan.shape.width).normal_(
            std=LANGUAGE_STD, generator=generator
        )
        pieces = _own_pieces(models, tag)
        yield ExportedLanguage(make_vocabulary(table_VD, torch.zeros(len(table_VD)), pieces.special), pieces, tables)


def _own_pieces(models: Models, tag: str) -> Tokenizer:
    """The tokenizer in a file that no other language has: white space behind it spells the tag."""
    shared = models.tokenizer
    file = models.folder / "pieces" / tag / shared.model.name
    if not file.exists():
        file.parent.mkdir()
        bits = "".join(f"{byte:08b}" for byte in tag.encode())
        file.write_bytes(shared.model.read_bytes() + bits.replace("0", " ").replace("1", "\n").encode())
    return Tokenizer.from_file(file, tag, shared.special)


def _separate(models: Models, exported: ExportedModel) -> None:
    """The model that an exporter writes: one file a language and task, with all weights in it."""
    out = models.separate(exported.name)
    beside = out.with_suffix("")
    beside.mkdir(parents=True)
    (brought,) = _languages(models, models.plan.tags[:1], "float32")
    written = write_standalone_model(beside, exported, brought)
    onnx_ir.save(onnx_ir.external_data.load_to_model(onnx_ir.load(written)), out)
    for file in beside.iterdir():
        file.unlink()
    beside.rmdir()
