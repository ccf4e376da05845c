"""Pretraining the primary in the source language, within windows first and with forgetting where the recipe asks.

Active forgetting is that of Chen et al. (2023, https://arxiv.org/abs/2307.01163, section 3).
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step
from lingraft.config.training import Pretraining
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.data.rng import derive_seed
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder, Vocabulary, freeze_except
from lingraft.model.initialisation.static_vectors import StaticVectors
from lingraft.model.loading import save_vocabulary
from lingraft.stages.vectors import begin_as_static_vectors, vectors_of
from lingraft.training.batches import masked_lm_stream
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed.launch import distributed
from lingraft.training.loop import max_steps
from lingraft.training.masked_lm import dev_evaluator
from lingraft.training.precision import preserve_rng
from lingraft.training.run import TrainingRun, masked_lm_phase, record_training, training_run
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
    train = open_split(data, "train")
    with preserve_rng():
        torch.manual_seed(settings.seed)
        encoder = Encoder(recipe.primary_shape, len(pieces))
        if settings.positions == "sinusoidal":
            encoder.init_sinusoidal_positions()
    made_from = {"stage": "pretrain", "blocks": data.fingerprint, "shape": encoder.shape.model_dump(mode="json")}
    with resumable(recipe, out, settings, made_from) as checkpointer:
        if made := already_done(out, Kind.PRIMARY, checkpointer, watch):
            return made
        vectors = vectors_of(train, pieces) if settings.embeddings == "static-vectors" else None
        if vectors:
            begin_as_static_vectors(encoder.vocabulary, vectors)
        dev_score = dev_evaluator(encoder, encoder, open_split(data, "dev"), settings)
        run = pretraining_run(
            recipe=recipe,
            step=step,
            encoder=encoder,
            blocks=train,
            vectors=vectors,
            checkpointer=checkpointer,
            dev_score=dev_score,
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


def pretraining_run(
    recipe: Recipe,
    step: Step,
    encoder: Encoder,
    blocks: Blocks,
    vectors: StaticVectors | None = None,
    checkpointer: CheckpointManager | None = None,
    dev_score: Callable[[], float] | None = None,
) -> TrainingRun:
    """Return the run that trains everything, in the source language (paper section 2, step 1), not yet begun.

    Attention begins uniform. A neighbour is more of what it sees in a window than in a block, and so stands out of the
    noise of a batch sooner; BERT, too, began on 128 of 512 tokens (Devlin et al. 2019, appendix A.2). Weights, moments
    and the schedule go on at the change to whole blocks as if there were none.

    A table that is forgotten begins again as it has begun, from `vectors` if given. Chen et al. restart its learning
    rate as well, and their code forgets to the end and takes the best checkpoint. Here one schedule serves table and
    body, and at least as many updates follow the last forgetting as lie between two.

    Raises:
        RecipeError: the batch cannot be divided over the processes.
    """
    settings, trained = recipe.require_pretraining(), freeze_except(encoder, encoder.parameters())
    phases = [masked_lm_phase(recipe, step, encoder, settings)]
    if windows := settings.windows:
        end: dict[str, Any] = {"ends_at": windows.steps, "is_last": False}
        phases.insert(0, masked_lm_phase(recipe, step, encoder, settings, window=windows.tokens, **end))
    return training_run(
        recipe=recipe,
        phases=phases,
        trained=trained,
        stream=masked_lm_stream(blocks, settings),
        checkpointer=checkpointer,
        dev_score=dev_score,
        muon_matrices=encoder.inner_matrices() if settings.optimizer == "muon" else (),
        redraw=functools.partial(_forget, encoder.vocabulary, vectors, settings, max_steps(phases)),
    )


def _forget(
    vocabulary: Vocabulary, vectors: StaticVectors | None, settings: Pretraining, steps: int, step: int
) -> Sequence[nn.Parameter]:
    """Draw table and output bias anew before the first step after a forgetting, as seed and step alone decide."""
    if step - 1 not in settings.forgets_after(steps):
        return ()
    seed = derive_seed("forget", settings.seed, step)
    with preserve_rng():
        torch.manual_seed(seed)
        drawn = Vocabulary(*vocabulary.table_VD.shape)
    if vectors:
        begin_as_static_vectors(drawn, vectors, seed)
    vocabulary.load_state_dict(drawn.state_dict())
    return [*vocabulary.parameters()]
