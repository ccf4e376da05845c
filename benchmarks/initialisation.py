"""`python -m benchmarks.initialisation --text DIR --out DIR`: what each initialisation of a language's rows is worth.

A small primary is pretrained, and each language's embeddings are learned over its mini-model from every initialisation.
Printed is the masked accuracy of the whole primary with these embeddings, on text held out, along the way.
`--text` has <language>.txt for the source and the targets; what is in `--out` already is used again.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lingraft import blocks, masked_lm, stages, text, tokenizer
from lingraft.adaptation import adaptation_run
from lingraft.blocks import load_blocks, split
from lingraft.config import Recipe
from lingraft.encoder import mini_model
from lingraft.initialisation.classes import Initialisation
from lingraft.initialisation.rows import Initialised, initialise
from lingraft.models import Primary, load_primary
from lingraft.shards import in_memory
from lingraft.systems import Stage
from lingraft.tokenizer import Tokenizer

SOURCE, DEPTH, JUDGED_BLOCKS = "en", 2, 200
STEPS = (50, 150, 400)
"""Updates after which the primary is judged, besides 0."""


def settings(folder: Path, targets: Sequence[str]) -> Recipe:
    """128 wide, 4 layers, 3.6 M tokens: the least that leaves the plateau where only word frequencies are known."""
    training = {"batch_blocks": 16, "mask_rate": 0.3, "log_every_steps": 50}
    return Recipe.parse(
        {
            "name": "initialisation",
            "source": SOURCE,
            "targets": list(targets),
            "text": {"kind": "folder", "path": str(folder.resolve())},
            "split": {"dev_share": 0.05, "test_share": 0.05},
            "precision": "fp32",
            "threads": 1,
            "tokenizer": {"vocabulary": 4000},
            "encoder": {"width": 128, "layers": 4, "attention_heads": 2, "mlm_heads": [DEPTH, 4], "block_tokens": 64},
            "pretraining": {"steps": 3500, "learning_rate": 1.5e-3, "warmup_steps": 150, **training},
            "adaptation": {"steps": STEPS[-1], "depth": DEPTH, "learning_rate": 2e-3, "warmup_steps": 50, **training},
        }
    )


@dataclass(frozen=True)
class Curve:
    """One adaptation: masked accuracy of the primary after 0 and STEPS updates, and the loss between the last two."""

    accuracies: list[float]
    final_loss: float


@dataclass(frozen=True)
class Bench:
    """Folders of one run."""

    recipe: Recipe
    out: Path

    def prepare(self, language: str) -> None:
        """Text, tokenizer and blocks of a language."""
        folder, pieces, packed = (self.folder(noun, language) for noun in ("text", "tok", "blocks"))
        if not packed.exists():
            text.prepare(self.recipe, language, folder)
            tokenizer.train(self.recipe, folder, pieces)
            blocks.build(self.recipe, folder, pieces, packed)

    def primary(self) -> Primary:
        """The primary, pretrained if it is not there yet."""
        out = self.out / "primary"
        if not out.exists():
            packed, pieces = self.folder("blocks", SOURCE), self.folder("tok", SOURCE)
            stages.pretrain(self.recipe, packed, pieces, out, lambda point: None)
        return load_primary(out, self.recipe.primary_shape)

    def folder(self, noun: str, language: str) -> Path:
        return self.out / noun / language

    def blocks_of(self, language: str, pieces: Tokenizer) -> dict[str, Tensor]:
        """Blocks (N, T) to learn from and to be judged on."""
        found = load_blocks(self.folder("blocks", language), pieces, self.recipe.encoder.block_tokens)
        held_out_NT = split(found, "dev").all()[:JUDGED_BLOCKS]
        return {"train": split(found, "train").all(), "dev": held_out_NT}

    def curve(self, primary: Primary, rows: Initialised, blocks_NT: dict[str, Tensor], seed: int) -> Curve:
        """Learn a language's embeddings over the mini-model, and judge them in the whole primary on the way."""
        step, mini = self.recipe.steps_over(DEPTH)[Stage.ADAPT], mini_model(primary.encoder, DEPTH)
        training = self.recipe.adaptation.model_copy(update={"seed": seed})
        run = adaptation_run(self.recipe, step, mini, rows, in_memory(blocks_NT["train"]), training, STEPS)

        def judged() -> float:
            primary.encoder.vocabulary = mini.vocabulary
            return masked_lm.accuracy(primary.encoder, blocks_NT["dev"], primary.encoder.depths)[4]

        accuracies, loss = [judged()], float("nan")
        for point in run.points:
            loss = point.loss
            if point.step in STEPS:
                accuracies.append(judged())
                mini.train()
        return Curve(accuracies, loss)


def lines(bench: Bench, language: str, seeds: Sequence[int]) -> Iterator[str]:
    """One line of a Markdown table an initialisation: means over seeds, and the range of the last accuracy."""
    pieces = Tokenizer.load(bench.folder("tok", language))
    blocks_NT = bench.blocks_of(language, pieces)
    for how in (Initialisation.OVERLAP, Initialisation.RANDOM, Initialisation.FITTED):
        curves = []
        for seed in seeds:
            primary = bench.primary()
            generator = torch.Generator().manual_seed(seed)
            rows = initialise(primary.encoder.vocabulary, primary.tokenizer, pieces, how, generator)
            curves.append(bench.curve(primary, rows, blocks_NT, seed))
        means = (statistics.mean(column) for column in zip(*(curve.accuracies for curve in curves), strict=True))
        last = [curve.accuracies[-1] for curve in curves]
        cells = [f"{mean:.1%}" for mean in means] + [f"{min(last):.1%} to {max(last):.1%}"]
        loss = statistics.mean(curve.final_loss for curve in curves)
        yield f"| {language} | {how} | {rows.copied} | {' | '.join(cells)} | {loss:.2f} |"


def main() -> None:
    """Prepare what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder with <language>.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder for the primary and the blocks")
    parser.add_argument("--targets", nargs="+", default=["de", "tr", "ru", "zh"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    given = parser.parse_args()
    bench = Bench(settings(given.text, given.targets), given.out)
    for language in (SOURCE, *given.targets):
        bench.prepare(language)
    primary = bench.primary()
    own = masked_lm.accuracy(primary.encoder, bench.blocks_of(SOURCE, primary.tokenizer)["dev"], (4,))[4]
    print(f"{SOURCE}, held out: {own:.1%}; columns: copied rows, accuracy after 0 and {STEPS} updates, seeds, loss")
    for language in given.targets:
        for line in lines(bench, language, given.seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
