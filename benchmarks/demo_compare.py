"""`python -m benchmarks.demo_compare --out .demo-scratch`: what the demo's aligned start is worth, beside two others.

It takes the primary, tasks, tokenizers and blocks of `make demo-scratch`, and scores on its test pages:

- MINIJOINT from rows that start by overlap, as in the paper, over the same layers with as many updates;
- rows aligned from halves of the pages that have no page in common, as initialised. The demo's languages are
  translations of the same pages, which helps any alignment; this row shows how much is left without that.
"""

import argparse
import hashlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.scratch_check import TABLE_FILE, only_task
from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import write_json
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import primary_name, task_name
from lingraft.artifacts.token_ids import ids_dtype
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.data.blocks import load_blocks, open_split, pack_blocks, token_stream
from lingraft.data.documents import Document
from lingraft.data.shards import blocks_in_memory
from lingraft.data.text import load_split, load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import LingraftError
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.jobs.training import AdaptationJob
from lingraft.model.initialisation.aligned_rows import align_rows
from lingraft.model.initialisation.static_vectors import StaticVectors
from lingraft.model.loading import load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.reports.run.records import RunRecords
from lingraft.stages.evaluate import evaluate_language, evaluate_tasks, load_tasks, masked_test_blocks
from lingraft.stages.initialise import masked_loss
from lingraft.stages.results import load_language
from lingraft.stages.task_tests import task_tests
from lingraft.stages.vectors import vectors_of
from lingraft.training import masked_lm
from pipelines import local

SOURCE_HALF, TARGET_HALF = 0, 1


class Scores(NamedTuple):
    """Accuracy on a language's test pages, as initialised and in the end, where something was trained."""

    masked_initial: float
    topic_initial: float
    masked: float | None = None
    topic: float | None = None


def half_of(name: str) -> int:
    """Half of the pages, 0 or 1, that a page is in; the same for its translations, and independent of its split."""
    return hashlib.sha256(f"half of {name}".encode()).digest()[0] % 2


def half_vectors(text: Artifact, pieces: Tokenizer, block_tokens: int, half: int) -> StaticVectors:
    """Static vectors of a language from one half of its training pages.

    Args:
        text: text of the language.
        pieces: tokenizer of the language.
        block_tokens: length of a block.
        half: 0 or 1.
    """
    documents: list[Document] = [each for each in load_split(text, "train") if half_of(each.name) == half]
    stream = np.concatenate([*token_stream(documents, pieces, ids_dtype(len(pieces)))])
    blocks_NT, _ = pack_blocks(stream, block_tokens, pieces.special.begin)
    blocks = blocks_in_memory(torch.from_numpy(blocks_NT.astype(np.int64)))
    return vectors_of(blocks, pieces)


def fetched(folder: Path, name: str, kind: Kind, alias: str = tracking.CHAMPION) -> Path:
    """Return the folder that a registered artifact is in, fetched once."""
    if not folder.exists():
        tracking.fetch(name, kind, folder, alias)
    return folder


@dataclass(frozen=True)
class Demo:
    """A demo that has run, and a folder for what is compared with it."""

    recipe: Recipe
    work: Path

    @property
    def primary(self) -> Path:
        """The registered primary, fetched once."""
        return fetched(self.work / "primary", primary_name(self.recipe), Kind.PRIMARY)

    @property
    def tasks(self) -> list[Path]:
        """The task with each finetuning seed."""
        task = self.recipe.task(only_task(self.recipe))
        return [
            fetched(self.work / f"task-{seed}", task_name(self.recipe, task.name), Kind.TASK, f"seed-{seed}")
            for seed in task.finetuning.seeds
        ]

    def lane(self, language: str) -> LanguageDirs:
        """Text, tokenizer and blocks of a language, taken from the demo's results where they are there."""
        folders = LanguageDirs.under(self.work, language)
        for job in language_jobs(self.recipe, language, folders):
            if not job.out.exists():
                job.get_or_make()
        return folders

    def overlap(self, language: str) -> Scores:
        """Learn a language's embeddings from rows that start by overlap, and score them."""
        adaptation = self.recipe.adaptation.model_copy(update={"initialisation": Initialisation.OVERLAP})
        recipe, lane = self.recipe.model_copy(update={"adaptation": adaptation}), self.lane(language)
        learned, out = self.work / f"overlap-{language}", self.work / f"overlap-result-{language}"
        AdaptationJob(
            recipe=recipe,
            depth=adaptation.depth,
            language=language,
            primary=self.primary,
            blocks=lane.blocks,
            tokenizer=lane.tokenizer,
            out=learned,
        ).get_or_make()
        evaluate_language(
            recipe=recipe,
            primary=self.primary,
            embeddings=learned,
            tasks=self.tasks,
            text=lane.text,
            blocks=lane.blocks,
            out=out,
        )
        found = load_language(out)
        task = found.task_scores[only_task(recipe)]
        if task.initial is None:
            raise LingraftError(f"the evaluation of {language!r} has no scores at update 0.")
        return Scores(found.masked.primary_initial, task.initial.mean, found.masked.primary, task.score.mean)

    def halves(self, language: str) -> Scores:
        """Score rows that are aligned from halves of the pages without a page in common, untrained."""
        recipe, block_tokens = self.recipe, self.recipe.encoder.block_tokens
        source, lane = load_primary(self.primary, recipe.primary_shape), self.lane(language)
        pieces, text = Tokenizer.load(lane.tokenizer), load_text(lane.text, language)
        blocks = load_blocks(lane.blocks, pieces, block_tokens)
        found = align_rows(
            source=source.encoder.vocabulary,
            source_pieces=source.tokenizer,
            target_pieces=pieces,
            source_vectors=self._source_half,
            target_vectors=half_vectors(text, pieces, block_tokens, TARGET_HALF),
            seed=recipe.adaptation.seed,
            loss=masked_loss(source, open_split(blocks, "dev")),
        )
        rows = make_vocabulary(found.rows.table_VD, found.rows.bias_V, found.rows.special)
        tests = task_tests(recipe, load_tasks(self.tasks), text, pieces, source)
        judged = evaluate_tasks(tests, lambda model: swap(model.net.encoder, rows))
        swap(source.encoder, rows)
        top = source.encoder.shape.layers
        test_NT = masked_test_blocks(recipe, blocks)
        return Scores(masked_lm.accuracy(source.encoder, test_NT, (top,))[top], judged[0].scores.score.mean)

    @cached_property
    def _source_half(self) -> StaticVectors:
        """Static vectors of the source language from its half of the pages, for all languages."""
        lane, source = self.lane(self.recipe.source.language), self.recipe.source.language
        pieces, text = Tokenizer.load(lane.tokenizer), load_text(lane.text, source)
        return half_vectors(text, pieces, self.recipe.encoder.block_tokens, SOURCE_HALF)


def of_records(records: RunRecords, language: str, depth: int, task: str) -> Scores:
    """Scores of a language that the demo's report has.

    Raises:
        LingraftError: it has none at this depth.
    """
    for row in records.languages:
        if (row.language, row.depth) == (language, depth) and (found := row.task_scores.get(task)) and found.initial:
            return Scores(row.masked.primary_initial, found.initial.mean, row.masked.primary, found.score.mean)
    raise LingraftError(f"the report has no {language!r} over {depth} layers. Run `make demo-scratch` first.")


def lines(title: str, by_language: dict[str, Scores]) -> Iterator[str]:
    """A row of a Markdown table for each language, and one for their mean."""
    columns = [*zip(*by_language.values(), strict=True)]
    means = [None if None in column else mean(column) for column in columns]
    for name, scores in {**by_language, "mean": means}.items():
        cells = ["–" if value is None else f"{value:.1%}" for value in scores]
        yield f"| {title} | {name} | {' | '.join(cells)} |"


def main() -> None:
    """Compare, print the table, and write it as compare.json beside the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".demo-scratch"), help="folder of the demo's results")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/demo-scratch.toml"), help="the demo's recipe")
    arguments = parser.parse_args()
    try:
        recipe = Recipe.load(arguments.recipe)
        local.set_up(arguments.out)
        records, task, depth = RunRecords.load(arguments.out / "report"), only_task(recipe), recipe.adaptation.depth
        (arguments.out / TABLE_FILE).unlink(missing_ok=True)  # nobody records an earlier one
        work = arguments.out / "compare"
        shutil.rmtree(work, ignore_errors=True)
        demo = Demo(recipe, work)
        how, layers = recipe.adaptation.initialisation, recipe.encoder.layers
        table = {
            f"overlap, {System.MINIJOINT}": {each: demo.overlap(each) for each in recipe.targets},
            f"{how}, {System.MINIJOINT}": {each: of_records(records, each, depth, task) for each in recipe.targets},
            f"{how}, {System.BL_BASE}": {each: of_records(records, each, layers, task) for each in recipe.targets},
            f"{how} from halves that share no page": {each: demo.halves(each) for each in recipe.targets},
        }
    except LingraftError as error:
        sys.exit(f"error: {error}")
    print("| rows, system | language | masked, as initialised | topic, as initialised | masked, final | topic, final |")
    print("|---|---|---|---|---|---|")
    for title, by_language in table.items():
        print(*lines(title, by_language), sep="\n")
    told = {title: {each: scores._asdict() for each, scores in rows.items()} for title, rows in table.items()}
    write_json(arguments.out / TABLE_FILE, told)


if __name__ == "__main__":
    main()
