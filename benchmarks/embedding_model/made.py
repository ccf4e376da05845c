"""Embedding models of one body with random weights: a bundle of all languages, and a folder of each language alone.

Folders are those that `lingraft export hf` writes, so that sentence-transformers computes the same vectors.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file

from benchmarks.serving import words
from benchmarks.serving.made import LANGUAGE_STD, language_tags
from lingraft.artifacts import artifact
from lingraft.artifacts.files import atomic_folder, write_json, write_text
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import TABLE_FORMATS, Precision, TableFormat
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import Retrieval, Task
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.export.bundling import body_facts, language_facts
from lingraft.export.exported_model import ExportedModel, write_bodies
from lingraft.export.language import ExportedLanguage, write_language
from lingraft.export.parity import compare_languages
from lingraft.huggingface.fast_tokenizer import fast_tokenizer, tokenizer_config
from lingraft.huggingface.model import hf_config, hf_tensors
from lingraft.huggingface.sentence_transformer import write_modules
from lingraft.huggingface.tokenizer import TOKENIZER_JSON
from lingraft.model.encoder import Encoder, Vocabulary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.tasks.retrieval import TextEmbedder

TASK = Task(name="search", kind="retrieval")
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
ADDED = "xzz"
"""The language that is added to an index."""
_LETTERS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщ")
"""Letters of the added language for those of the first."""


class Plan(NamedTuple):
    """Size of the models."""

    shape: EncoderShape
    languages: int
    vocabulary: int

    @property
    def tags(self) -> list[str]:
        """Languages of the bundle."""
        return language_tags(self.languages)

    def __str__(self) -> str:
        shape = f"{self.shape.layers} layers of width {self.shape.width}"
        return f"{self.languages} languages of {self.vocabulary:,} pieces each, a body of {shape}"


class Models(NamedTuple):
    """Folders of the models."""

    folder: Path
    plan: Plan

    def bundle(self, tables: TableFormat) -> Path:
        """Return the bundle of all languages."""
        return self.folder / tables

    @property
    def addition(self) -> Path:
        """A bundle of the same body with the language that is added alone."""
        return self.folder / "added"

    def sentence_transformer(self, tag: str) -> Path:
        """Return the folder of one language for sentence-transformers."""
        return self.folder / "sentence-transformers" / tag

    @property
    def sentence_transformers(self) -> list[Path]:
        """Folders of all languages."""
        return [self.sentence_transformer(tag) for tag in self.plan.tags]

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer whose pieces all languages but the added one have."""
        return Tokenizer.load(self.folder / "pieces" / "tokenizer")


def added_text(text: str) -> str:
    """Write a text of the first language in the letters of the added one."""
    return text.translate(_LETTERS)


def make(plan: Plan, folder: Path) -> Models:
    """Write everything that is not there yet."""
    models = Models(folder, plan)
    if not (folder / "pieces" / "tokenizer").exists():
        words.train(plan.vocabulary, folder / "pieces")
    torch.manual_seed(1)
    net = TextEmbedder(Encoder(plan.shape, 0), Retrieval()).eval()
    exported = ExportedModel(TASK.name, TASK.kind, net, [], TASK)
    if not models.addition.exists():
        equal = ExportedLanguage(_vocabulary(models, plan.tags[0]), _added_tokenizer(models), "float32")
        _bundle(models.addition, exported, [equal])
    for tables in TABLE_FORMATS:
        if not models.bundle(tables).exists():
            _bundle(models.bundle(tables), exported, [_language(models, tag, tables) for tag in plan.tags])
    for tag in plan.tags:
        if not models.sentence_transformer(tag).exists():
            _sentence_transformer(models.sentence_transformer(tag), net, _language(models, tag, "float32"))
    return models


def _vocabulary(models: Models, tag: str) -> Vocabulary:
    generator = torch.Generator().manual_seed(int.from_bytes(tag.encode()))
    pieces = models.tokenizer
    table_VD = torch.empty(len(pieces), models.plan.shape.width).normal_(std=LANGUAGE_STD, generator=generator)
    return make_vocabulary(table_VD, torch.zeros(len(pieces)), pieces.special)


def _language(models: Models, tag: str, tables: TableFormat) -> ExportedLanguage:
    pieces = models.tokenizer
    return ExportedLanguage(_vocabulary(models, tag), Tokenizer.from_file(pieces.model, tag, pieces.special), tables)


def _added_tokenizer(models: Models) -> Tokenizer:
    """Return the first language's tokenizer in other letters, so that its pieces and their order are the same."""
    pieces = models.tokenizer
    file = models.folder / "pieces" / ADDED / TOKENIZER_JSON
    content = json.loads(fast_tokenizer(pieces, models.plan.shape).to_str())
    special = {each["content"] for each in content["added_tokens"]}
    content["model"]["vocab"] = [
        [piece if piece in special else added_text(piece), score] for piece, score in content["model"]["vocab"]
    ]
    write_json(file, content)
    return Tokenizer.from_file(file, ADDED, pieces.special)


def _bundle(out: Path, exported: ExportedModel, languages: Sequence[ExportedLanguage]) -> None:
    with artifact.create(out, Kind.BUNDLE) as draft:
        write_bodies(draft, exported, PRECISIONS)
        for language in languages:
            write_language(draft, language, exported)
        # The body is the same for all languages.
        parity = {each: compare_languages(draft.folder, exported, languages[:1], each) for each in PRECISIONS}
        described = {language.tag: language.tokenizer_facts() for language in languages}
        draft.facts = {
            "language": languages[0].tag,
            "aligned_with": "random weights",
            "details": body_facts(exported) | language_facts(described, parity) | {"tables": languages[0].table_format},
            "record": {"parity": parity},
        }


def _sentence_transformer(out: Path, net: TextEmbedder, language: ExportedLanguage) -> None:
    swap(net.encoder, language.vocabulary)
    with atomic_folder(out) as folder:
        write_json(folder / "config.json", hf_config(net, "bert"))
        save_file(hf_tensors(net, "bert"), folder / "model.safetensors", metadata={"format": "pt"})
        write_text(folder / "tokenizer.json", fast_tokenizer(language.tokenizer, net.encoder.shape).to_str())
        write_json(folder / "tokenizer_config.json", tokenizer_config(language.tokenizer, net.encoder.shape))
        write_modules(folder, net)
