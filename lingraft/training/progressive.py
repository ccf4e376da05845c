"""Progressive adaptation: embeddings learned over one mini-model after another, each deeper than the one before.

The paper leaves this open (section 7). Everything but the depth is that of an adaptation over one mini-model: rows,
their moments, the order of the text, the masks and the schedule go on at a switch as if there were none.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lingraft.artifacts.artifact import Cost
from lingraft.config.progressive import DevLossSwitch, FixedSwitch, Progressive
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Step
from lingraft.config.training import Training
from lingraft.data.shards import Blocks
from lingraft.model.encoder import Encoder
from lingraft.model.flops import step_flops
from lingraft.model.initialisation.rows import InitialRows
from lingraft.model.swap import make_vocabulary, swap
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.freezing import trainable_parameters
from lingraft.training.phases import TrainingPhase
from lingraft.training.run import TrainingRun, masked_lm_phase, phased_run
from lingraft.training.schedule import TRAINING_START, PhaseStart, Plateau
from lingraft.training.state import TrainingState


def progressive_run(
    recipe: Recipe,
    switch: Progressive,
    steps: Sequence[Step],
    minis: Sequence[Encoder],
    rows: InitialRows,
    blocks: Blocks,
    settings: Training,
    stops: Sequence[int] = (),
    checkpointer: CheckpointManager | None = None,
    judge: Callable[[], float] | None = None,
    dev_loss: Callable[[], float] | None = None,
) -> TrainingRun:
    """Put `rows` into mini-models and return the run that trains them over one after the other, not yet begun.

    Args:
        recipe: number format and threads.
        switch: the depths, and what says when the next one follows.
        steps: of adaptation, one a depth.
        minis: their models, whose bodies are one primary's.
        rows: of the language, before training.
        blocks: to train on.
        settings: length, in updates over the deepest, and schedule.
        stops: further steps after which the run yields a point.
        checkpointer: keeps checkpoints, and finds the one to go on from.
        judge: the dev score, where the settings ask for looks at it.
        dev_loss: where the switch asks for looks at it.

    Raises:
        RecipeError: a depth's share is less than one update.
    """
    vocabulary = make_vocabulary(rows.table_VD.clone(), rows.bias_V.clone(), rows.special)
    for mini in minis:
        swap(mini, vocabulary)
    phases = [*_phases(recipe, switch, steps, minis, settings, stops)]
    return phased_run(
        recipe, phases, trainable_parameters(steps[-1], minis[-1]), blocks, settings, checkpointer, judge, dev_loss
    )


def _phases(
    recipe: Recipe,
    switch: Progressive,
    steps: Sequence[Step],
    minis: Sequence[Encoder],
    settings: Training,
    stops: Sequence[int],
) -> Iterator[TrainingPhase]:
    flops = [step_flops(recipe, step, settings, len(minis[-1].vocabulary)) for step in steps]
    if isinstance(switch, FixedSwitch):
        switch.updates(settings.steps, flops)  # refuses depths that get none
    for number, (step, mini, end) in enumerate(zip(steps, minis, switch.ends(), strict=True)):
        followed = number + 1 < len(steps)
        changes: dict[str, Any] = {"depth": switch.depths[number], "stride": flops[number] / flops[-1]}
        changes |= {"ends_at": None if end is None else end * settings.steps, "is_last": not followed}
        if followed and isinstance(switch, DevLossSwitch):
            changes |= {"look_every_steps": switch.look_every_steps}
            changes |= {"plateau": Plateau(switch.window_looks, switch.threshold)}
        yield masked_lm_phase(recipe, step, mini, settings, stops, **changes)


def phase_costs(switch: Progressive, state: TrainingState, cost: Cost) -> list[dict[str, Any]]:
    """Depth, updates and FLOPs of each phase so far.

    Args:
        switch: which names the depths.
        state: of the training.
        cost: of all phases.
    """
    ends = [*state.begun, PhaseStart(cost.steps, cost.flops)]
    return [
        {"depth": depth, "steps": end.step - begun.step, "flops": end.flops - begun.flops}
        for depth, begun, end in zip(switch.depths, [TRAINING_START, *state.begun], ends, strict=False)
    ]
