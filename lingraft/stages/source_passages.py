"""Passages in the source language, embedded once by its own embeddings, among which every language's queries search.

The source's evaluation keeps them: hashes, vectors, and the pieces of each passage in the order of their ids. No
passage is kept as text.

Legend: P passages, E width of a vector, R pieces of all passages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Artifact
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import BeirFolder, ParallelDocuments
from lingraft.data.text import read_split
from lingraft.model.loading import LoadedPrimary
from lingraft.stages.alignment_probe import chosen_paragraphs, digest_of
from lingraft.stages.results import require_source
from lingraft.tasks.finetuned import TaskModel
from lingraft.tasks.retrieval import PassageRetrieval, TokenizedTexts, embed
from lingraft.tasks.searches import read_texts
from lingraft.training import precision

PART = "passages"
"""Tensors of a source's evaluation that hold the passages of its tasks of kind 'retrieval'."""


@dataclass(frozen=True, eq=False)
class SourcePassages:
    """Embedded passages of one task."""

    keys: list[int]
    """Hash of each passage's text; of a paragraph, the key that parallel ones share; of a document, its name's hash."""
    digests: list[int]
    """Hash of each passage's text."""
    pieces: list[list[int]]
    """Ids of each passage's pieces, sorted; no special tokens."""
    vectors: Mapping[int, Tensor]
    """Vectors (P, E) by finetuning seed."""
    truncated: int
    """Number of passages of which only a part fits a block."""

    @classmethod
    def embedded(
        cls,
        seeds: Sequence[TaskModel],
        source: LoadedPrimary,
        passages: Sequence[str],
        keys: Sequence[int] | None = None,
    ) -> Self:
        """Embed passages with each seed of a task of kind 'retrieval'; its bodies then have the source's embeddings."""
        kind, shape = retrieval_of(seeds), seeds[0].shape
        tokens = TokenizedTexts.of(passages, kind.settings.passage_prefix, source.tokenizer, shape)
        vectors = {}
        for model in seeds:
            model.swap_in(source)
            vectors[model.seed] = embed(model.net.to(precision.device()), tokens)
        digests = [*map(digest_of, passages)]
        return cls(
            keys=digests if keys is None else [*keys],
            digests=digests,
            pieces=[sorted(ids) for ids in source.tokenizer.encode_all(passages)],
            vectors=vectors,
            truncated=tokens.encoded.truncated,
        )

    def tensors(self, task: str) -> dict[str, Tensor]:
        """Return the passages as tensors, whose names begin with the task's."""
        flat = [piece for ids in self.pieces for piece in ids]
        return {
            f"{task}/keys": torch.tensor(self.keys),
            f"{task}/digests": torch.tensor(self.digests),
            f"{task}/pieces": torch.tensor(flat, dtype=torch.int32),
            f"{task}/lengths": torch.tensor([len(ids) for ids in self.pieces]),
            f"{task}/truncated": torch.tensor([self.truncated]),
            **{f"{task}/vectors/{seed}": vectors_PE for seed, vectors_PE in self.vectors.items()},
        }

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], task: str) -> Self:
        """Read what `tensors` made."""
        pieces_R, lengths = tensors[f"{task}/pieces"], tensors[f"{task}/lengths"].tolist()
        seeds = f"{task}/vectors/"
        return cls(
            keys=tensors[f"{task}/keys"].tolist(),
            digests=tensors[f"{task}/digests"].tolist(),
            pieces=[ids.tolist() for ids in pieces_R.split(lengths)],
            vectors={int(name.removeprefix(seeds)): each for name, each in tensors.items() if name.startswith(seeds)},
            truncated=int(tensors[f"{task}/truncated"]),
        )


def retrieval_of(seeds: Sequence[TaskModel]) -> PassageRetrieval:
    """Return the kind of a task of kind 'retrieval'."""
    kind = seeds[0].kind
    assert isinstance(kind, PassageRetrieval)
    return kind


def embed_source_passages(
    recipe: Recipe, tasks: Mapping[str, Sequence[TaskModel]], source: LoadedPrimary, text: Artifact
) -> dict[str, SourcePassages]:
    """Embed the passages that are the same for every language, by task: parallel text, or a corpus of BEIR.

    Raises:
        TextError: the corpus cannot be read.
    """
    found = {}
    for name, seeds in tasks.items():
        match recipe.task(name).test:
            case ParallelDocuments(queries="titles"):
                documents = [*read_split(text, "test")]
                keys = [digest_of(each.name) for each in documents]
                texts = [" ".join(each.text.split("\n")) for each in documents]
                found[name] = SourcePassages.embedded(seeds, source, texts, keys)
            case ParallelDocuments():
                chosen, _ = chosen_paragraphs(text, "test", source.tokenizer)
                keys = [each.key for each in chosen]
                found[name] = SourcePassages.embedded(seeds, source, [each.text for each in chosen], keys)
            case BeirFolder(source_corpus=str() as corpus):
                passages = read_texts(Path(corpus), recipe.source.language)
                found[name] = SourcePassages.embedded(seeds, source, [*passages.values()])
    return found


def load_source_passages(
    evaluation: Path, primary: LoadedPrimary, tasks: Mapping[str, Sequence[TaskModel]]
) -> dict[str, SourcePassages]:
    """Open the passages that a source's evaluation keeps, by task, of those tasks that it judged just as they are.

    Raises:
        ArtifactError: not an evaluation of a source, or damaged.
        AlignmentError: it is of another primary.
    """
    found = require_source(evaluation, primary.fingerprint)
    tensors = found.tensors(PART) if PART in found.manifest.fingerprints else {}
    judged = found.manifest.data_hashes
    return {
        name: SourcePassages.of_tensors(tensors, name)
        for name, seeds in tasks.items()
        if f"{name}/keys" in tensors and all(judged.get(task_hash(model)) == model.fingerprint for model in seeds)
    }


def task_hash(model: TaskModel) -> str:
    """Return the name of a finetuned task's fingerprint in the manifest of an evaluation."""
    return f"task-{model.name}-{model.seed}"
