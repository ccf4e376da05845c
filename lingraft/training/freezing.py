"""Which parameters a step trains; all others are frozen."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from lingraft.config.systems import Step, TrainedPart


def trainable_parameters(step: Step, model: nn.Module) -> list[nn.Parameter]:
    """The parameters that a step trains, of an encoder or of a task's net.

    Positions and LayerNorms train with the body; the vocabulary does not, or the languages would no longer fit.
    """
    encoder: Any = getattr(model, "encoder", model)
    named = {
        TrainedPart.EVERYTHING: encoder.parameters,
        TrainedPart.FRESH_LAYERS: encoder.layers[len(encoder.layers) - step.fresh_layers :].parameters,
        TrainedPart.EMBEDDINGS: encoder.vocabulary.parameters,
    }
    if step.trained is not TrainedPart.BODY:
        return [*named[step.trained]()]
    fixed = {*encoder.vocabulary.parameters(), *encoder.heads.parameters()}
    return [parameter for parameter in model.parameters() if parameter not in fixed]


def freeze_except(model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
    """Frozen parameters get no gradient, and what lies below all that trains is computed without autograd."""
    model.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)
