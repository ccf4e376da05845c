"""The four systems of the paper (section 2, figure 2) as data: what each step trains, over which layers and heads.

Stages, costs and pipelines follow the steps, and do not ask which system they are at.
"""

from dataclasses import dataclass
from enum import StrEnum

from lingraft.errors import DepthError


class System(StrEnum):
    """The systems that the paper compares."""

    BL_BASE = "BL_BASE"
    """Standard adaptation, over all layers (Artetxe et al. 2020): the upper bound."""
    BL_SMALL = "BL_SMALL"
    """A model that is shallow throughout: the lower bound."""
    MINIJOINT = "MINIJOINT"
    """A primary pretrained with further MLM heads, each of which cuts a mini-model."""
    MINIPOST = "MINIPOST"
    """A mini-model built afterwards, from the bottom of any primary and a few fresh layers; learning by sentence pairs
    reads the bottom as it is, without fresh layers."""


class Stage(StrEnum):
    """The steps of section 2 that train something; swapping (step 4) trains nothing."""

    PRETRAIN = "pretraining"
    BUILD_MINI = "step 1b"
    ADAPT = "adaptation"
    FINETUNE = "finetuning"


class TrainedPart(StrEnum):
    """Part of a model that a step trains; the rest is frozen."""

    EVERYTHING = "everything"
    FRESH_LAYERS = "fresh layers"
    EMBEDDINGS = "token table and output bias"
    BODY = "body and task head"
    HEAD = "task head"


@dataclass(frozen=True)
class Step:
    """One training step of a system."""

    stage: Stage
    trained: TrainedPart
    layers: int
    """Layers that tokens pass through."""
    heads: tuple[int, ...] = ()
    """Layers of this step's model that carry an MLM head; the loss is the mean over heads. None in finetuning."""
    fresh_layers: int = 0
    """Layers at the top of this step's model that are no layers of the primary."""


Steps = dict[Stage, Step]


def steps_of(system: System, layers: int, depth: int, fresh_layers: int = 0, heads: tuple[int, ...] = ()) -> Steps:
    """The steps of a system."""
    _require_depth(system, layers, depth)
    joint = heads or tuple(sorted({depth, layers}))
    mini = depth + fresh_layers
    whole = (
        Step(Stage.PRETRAIN, TrainedPart.EVERYTHING, layers, (layers,)),
        Step(Stage.FINETUNE, TrainedPart.BODY, layers),
    )
    table = {
        System.BL_BASE: (*whole, Step(Stage.ADAPT, TrainedPart.EMBEDDINGS, layers, (layers,))),
        System.BL_SMALL: (
            Step(Stage.PRETRAIN, TrainedPart.EVERYTHING, depth, (depth,)),
            Step(Stage.FINETUNE, TrainedPart.BODY, depth),
            Step(Stage.ADAPT, TrainedPart.EMBEDDINGS, depth, (depth,)),
        ),
        System.MINIJOINT: (
            Step(Stage.PRETRAIN, TrainedPart.EVERYTHING, layers, joint),
            Step(Stage.FINETUNE, TrainedPart.BODY, layers),
            Step(Stage.ADAPT, TrainedPart.EMBEDDINGS, depth, (depth,)),
        ),
        System.MINIPOST: (
            *whole,
            Step(Stage.BUILD_MINI, TrainedPart.FRESH_LAYERS, mini, (mini,), fresh_layers),
            Step(Stage.ADAPT, TrainedPart.EMBEDDINGS, mini, (mini,) if fresh_layers else (), fresh_layers),
        ),
    }
    return {step.stage: step for step in table[system] if fresh_layers or step.stage is not Stage.BUILD_MINI}


def _require_depth(system: System, layers: int, depth: int) -> None:
    if not 1 <= depth <= layers:
        raise DepthError(f"depth {depth} must be from 1 to the primary's {layers} layers. Choose one of these.")
    if system is not System.MINIPOST:
        return
    if depth == layers:
        raise DepthError(
            f"a MINIPOST mini-model of depth {depth} leaves none of the primary's {layers} layers out, so it saves "
            f"nothing. Choose a depth from 1 to {layers - 1}."
        )
