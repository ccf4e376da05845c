"""MINIPOST's mini-model: fresh layers between the bottom of the primary and its MLM head (section 2, step 1b)."""

from pathlib import Path

import torch

from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.model.encoder import freeze_except, fresh_head, fresh_layers, mini_model
from lingraft.model.loading import HEAD_PART, load_primary
from lingraft.training.batches import masked_lm_stream
from lingraft.training.distributed.launch import distributed
from lingraft.training.precision import preserve_rng
from lingraft.training.run import masked_lm_plan, record_training, training_run
from lingraft.training.schedule import MetricsCallback
from lingraft.training.stage_output import already_done, require_empty, resumable, save_result


@distributed
def build_mini(recipe: Recipe, primary: Path, blocks: Path, out: Path, watch: MetricsCallback) -> Artifact:
    """Train MINIPOST's fresh layers between the bottom of the primary and its MLM head (section 2, step 1b).

    Where the primary has no head, as an embedding model has none, one is trained with them from random weights.

    Tokens pass the lowest layers without autograd: nothing there is trained, nor anything below.

    Raises:
        RecipeError: the recipe's system has no step 1b, or its [encoder] is not the primary's.
        TokenizerError: the blocks were made with another tokenizer.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_empty(out)
    settings, step = recipe.require_mini(), recipe.steps_over(recipe.adaptation.depth)[Stage.BUILD_MINI]
    source = load_primary(primary, recipe.primary_shape)
    data = load_blocks(blocks, source.tokenizer, recipe.encoder.block_tokens)
    with preserve_rng():
        torch.manual_seed(settings.seed)
        fresh = fresh_layers(source.encoder.shape, step.fresh_layers)
        head = None if source.encoder.depths else fresh_head(source.encoder.shape)
    depth = step.layers - step.fresh_layers
    mini = mini_model(source.encoder, depth, fresh, head)
    trained = freeze_except(mini, [*fresh.parameters(), *(head.parameters() if head else ())])
    made_from = {"stage": "mini", "primary": source.fingerprint, "blocks": data.fingerprint, "depth": depth}
    with resumable(recipe, out, settings, made_from) as checkpointer:
        if made := already_done(out, Kind.MINI, checkpointer, watch):
            return made
        run = training_run(
            recipe=recipe,
            plan=masked_lm_plan(recipe, step, mini, settings),
            trained=trained,
            stream=masked_lm_stream(open_split(data, "train"), settings),
            checkpointer=checkpointer,
        )
        with run.watched(f"build mini-model of {step.layers} layers", watch) as report:
            for point in run.points:
                report(point)

        def fill(draft: Draft) -> None:
            draft.tensors("layers", fresh.state_dict())
            if head:
                draft.tensors(HEAD_PART, head.state_dict())
            record_training(draft, recipe.source.language, input_hashes(data), settings, run)
            draft.facts["tokenizer_hash"] = source.tokenizer.hash
            draft.facts["aligned_with"] = source.fingerprint
            draft.facts["details"] |= {
                "shape": mini.shape.model_dump(mode="json"),
                "depth": depth,
                "fresh_layers": step.fresh_layers,
                "system": recipe.system,
            }

        return save_result(out, Kind.MINI, fill, checkpointer)
