"""One optimizer step of every stage of `recipes/base.toml`, at its true shape, in micro-batches.

    python -m benchmarks.base_step [--recipe recipes/base.toml] [--at-once 4] [--blocks 2048] [--out FILE]

The text is random pieces of the recipe's vocabulary, which cost what real ones do. Prints seconds, FLOP/s by the
paper's formulas, and the peak of memory so far; stages that `--out` holds already are not run again.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.speed.memory import resident_peak_bytes
from lingraft.artifacts.files import write_json
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, System
from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Encoder, freeze_except, fresh_layers, mini_model
from lingraft.model.initialisation.initial_rows import InitialRows
from lingraft.stages.adapt import adaptation_run
from lingraft.stages.finetune import body_parameters
from lingraft.tasks.classification import Classification, Classified
from lingraft.tasks.pairs import Encoded
from lingraft.training.batches import masked_lm_stream, task_stream
from lingraft.training.run import TrainingRun, masked_lm_plan, task_plan, training_run

_LABELS = ("entailment", "neutral", "contradiction")


def one_update(recipe: Recipe, at_once: int, blocks: int) -> Recipe:
    """Return the recipe with one update a stage, of as many blocks as asked for."""
    changes = {"steps": 1, "warmup_steps": 0, "batch_blocks": blocks, "micro_batch_blocks": at_once}
    sections = ("pretraining", "mini", "adaptation")
    return recipe.model_copy(update={name: getattr(recipe, name).model_copy(update=changes) for name in sections})


def random_blocks(recipe: Recipe) -> Tensor:
    """Blocks (N, T) of random ordinary pieces."""
    generator = torch.Generator().manual_seed(1)
    size = recipe.pretraining.batch_blocks, recipe.encoder.block_tokens
    return torch.randint(
        len(DEFAULT_SPECIAL_IDS), recipe.tokenizer.vocabulary, size, generator=generator, dtype=torch.int32
    )


def stages(recipe: Recipe) -> Iterator[tuple[str, Callable[[], TrainingRun]]]:
    """Every stage's name, and what prepares its run; the cheapest first."""
    blocks_NT, vocabulary = random_blocks(recipe), recipe.tokenizer.vocabulary
    blocks = blocks_in_memory(blocks_NT)
    depth = recipe.adaptation.depth

    def pretraining() -> TrainingRun:
        encoder = Encoder(recipe.primary_shape, vocabulary)
        step = recipe.steps_over(depth)[Stage.PRETRAIN]
        plan = masked_lm_plan(recipe, step, encoder, recipe.pretraining)
        return training_run(recipe, plan, [*encoder.parameters()], masked_lm_stream(blocks, recipe.pretraining))

    def building() -> TrainingRun:
        step = recipe.steps_over(depth, System.MINIPOST)[Stage.BUILD_MINI]
        encoder = Encoder(recipe.primary_shape, vocabulary)
        fresh = fresh_layers(encoder.shape, step.fresh_layers)
        settings = recipe.for_system(System.MINIPOST).require_mini()
        mini = mini_model(encoder, depth, fresh)
        trained = freeze_except(mini, fresh.parameters())
        return training_run(
            recipe, masked_lm_plan(recipe, step, mini, settings), trained, masked_lm_stream(blocks, settings)
        )

    def adaptation() -> TrainingRun:
        mini = mini_model(Encoder(recipe.primary_shape, vocabulary), depth)
        rows = InitialRows(mini.vocabulary.table_VD.detach().clone(), torch.zeros(vocabulary), 0, {}, {})
        return adaptation_run(
            recipe=recipe,
            step=recipe.steps_over(depth)[Stage.ADAPT],
            mini=mini,
            rows=rows,
            blocks=blocks,
            settings=recipe.adaptation,
        )

    def finetuning() -> TrainingRun:
        settings = recipe.tasks[0].finetuning
        rows = blocks_NT[: settings.batch_examples].tolist()
        encoded = Encoded(rows, None, [len(row) for row in rows])
        data = Classified(encoded, torch.zeros(len(rows)).long(), DEFAULT_SPECIAL_IDS.pad)
        kind = Classification()
        once = {"epochs": 1}
        net = kind.net(Encoder(recipe.primary_shape, vocabulary), _LABELS)
        step = recipe.steps_over(depth)[Stage.FINETUNE]
        trained = freeze_except(net, body_parameters(net))
        training = settings.model_copy(update=once)
        plan = task_plan(recipe=recipe, step=step, net=net, kind=kind, data=data, settings=training, seed=1)
        stream = task_stream(data, training.batch_examples, 1, training.group_by_length)
        return training_run(recipe, plan, trained, stream)

    yield "finetuning", finetuning
    yield f"adaptation over {depth}", adaptation
    yield "step 1b", building
    yield "pretraining", pretraining


def measured(prepare: Callable[[], TrainingRun]) -> dict[str, float]:
    """Run the one update, and say what it took."""
    torch.manual_seed(1)
    run = prepare()
    started = time.perf_counter()
    [point] = run.points
    elapsed_s = time.perf_counter() - started
    return {
        "tokens": point.tokens,
        "loss": point.loss,
        "elapsed_s": elapsed_s,
        "tflop": point.flops / 1e12,
        "gflop_per_s": point.flops / elapsed_s / 1e9,
        "peak_memory_gib": resident_peak_bytes() / 2**30,
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/base.toml"))
    parser.add_argument("--at-once", type=int, help="blocks of a micro-batch; the recipe's if absent")
    parser.add_argument("--blocks", type=int, help="blocks in the update; the recipe's batch if absent")
    parser.add_argument("--out", type=Path, help="JSON file to keep what was measured in")
    given = parser.parse_args()
    recipe = Recipe.load(given.recipe)
    at_once = given.at_once or recipe.pretraining.blocks_at_once
    recipe = one_update(recipe, at_once, given.blocks or recipe.pretraining.batch_blocks)
    found = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    for name, prepare in stages(recipe):
        if name not in found:
            found[name] = measured(prepare)
            print(name, " ".join(f"{key} {value:,.2f}" for key, value in found[name].items()), flush=True)
            if given.out:
                write_json(given.out, found)


if __name__ == "__main__":
    main()
