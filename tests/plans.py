"""Plans of trainings without a stage around them."""

from typing import Any

from lingraft.training.schedule import Schedule


def planned(**changes: Any) -> Schedule:
    """A plan without weight decay that is told every four steps; say how many steps there are, and which warm up."""
    plain = {"learning_rate": 0.1, "weight_decay": 0.0, "clip_norm": 1.0, "log_every_steps": 4}
    return Schedule(**(plain | {"tokens_per_step": 64, "flops_per_step": 1e6} | changes))
