"""Pretraining the primary in the source language."""

from pathlib import Path

import torch

from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, freeze_except
from lingraft.model.loading import save_vocabulary
from lingraft.training.batches import masked_lm_stream
from lingraft.training.distributed.launch import distributed
from lingraft.training.precision import preserve_rng
from lingraft.training.run import masked_lm_plan, record_training, training_run
from lingraft.training.schedule import MetricsCallback
from lingraft.training.stage_output import already_done, require_empty, resumable, save_result


@distributed
def pretrain(recipe: Recipe, blocks: Path, tokenizer: Path, out: Path, watch: MetricsCallback) -> Artifact:
    """Train the primary with its MLM heads from nothing, in the source language (paper section 2, step 1).

    Interrupted, it goes on from its last checkpoint when it is called again, as all stages do that train.

    Raises:
        TokenizerError: the tokenizer is not the source's, or the blocks were made with another.
        TrainingError: too many losses or gradients are not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_empty(out)
    pieces = Tokenizer.load(tokenizer, recipe.source.language)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    settings, step = recipe.require_pretraining(), recipe.steps_over(recipe.adaptation.depth)[Stage.PRETRAIN]
    with preserve_rng():
        torch.manual_seed(settings.seed)
        encoder = Encoder(recipe.primary_shape, len(pieces))
    made_from = {"stage": "pretrain", "blocks": data.fingerprint, "shape": encoder.shape.model_dump(mode="json")}
    with resumable(recipe, out, settings, made_from) as checkpointer:
        if made := already_done(out, Kind.PRIMARY, checkpointer, watch):
            return made
        trained = freeze_except(encoder, encoder.parameters())
        run = training_run(
            recipe=recipe,
            plan=masked_lm_plan(recipe, step, encoder, settings),
            trained=trained,
            stream=masked_lm_stream(open_split(data, "train"), settings),
            checkpointer=checkpointer,
        )
        with run.watched(f"pretrain {recipe.source.language}", watch) as report:
            for point in run.points:
                report(point)

        def fill(draft: Draft) -> None:
            draft.tensors("body", encoder.body_tensors())
            save_vocabulary(draft, encoder.vocabulary, pieces)
            record_training(draft, pieces.language, input_hashes(data), settings, run)
            draft.facts["tokenizer_hash"] = pieces.hash
            draft.facts["details"] |= {"shape": encoder.shape.model_dump(mode="json")}

        return save_result(out, Kind.PRIMARY, fill, checkpointer)
