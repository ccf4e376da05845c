"""Jobs that prepare a language: its text, its tokenizer and its blocks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.bilingual_dictionary import learned_hashes
from lingraft.jobs.job import Job, LanguageJob
from lingraft.jobs.launchable import Input, OptionalInput
from lingraft.training.schedule import MetricsCallback, ignore_metrics


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


class TextJob(LanguageJob, frozen=True):
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


class TokenizerJob(LanguageJob, frozen=True):
    """Trains a language's tokenizer."""

    kind = Kind.TOKENIZER
    name_format = "tokenizer-{job.tag}"
    title_format = "tokenizer of {job.tag!r}"
    sections = ("tokenizer",)
    tagged_input = "text"
    text: Input
    source: OptionalInput = None
    """Primary or tokenizer of the source language, whose pieces are borrowed."""

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, **({"kept": True} if self.recipe.keeps_tokenizer(self.tag) else {})}

    @override
    def outside(self) -> Mapping[str, Any]:
        return learned_hashes(self.recipe, self.tag)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.data.tokenizer.training import train_tokenizer

        return train_tokenizer(self.recipe, self.text, self.out, self.source)


class BlocksJob(LanguageJob, frozen=True):
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


def language_jobs(recipe: Recipe, language: str, folders: LanguageDirs, source: Path | None = None) -> list[Job]:
    """Return the jobs that prepare a language: its text, its tokenizer, which may borrow pieces, and its blocks."""
    common: dict[str, Any] = {"recipe": recipe, "language": language}
    return [
        TextJob(out=folders.text, **common),
        TokenizerJob(text=folders.text, out=folders.tokenizer, source=source, **common),
        BlocksJob(text=folders.text, tokenizer=folders.tokenizer, out=folders.blocks, **common),
    ]
