"""Pipeline parameters for the resources of stages, which each run can set without compiling again."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lingraft.config.cluster import Cluster, Profile, StageName
from pipelines.cluster import StepSettings, tolerated


def settable(
    cluster: Cluster, *stages: StageName, **described: str | None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds parameters such as `pretraining_memory`, with the recipe's values as defaults.

    The decorated function gets its settings of steps as `step_settings`. Amounts are strings, since the driver of KFP
    reads no numbers where it creates pods.

    Args:
        cluster: the recipe's cluster, with the profiles of the stages.
        stages: stages of the pipeline.
        described: descriptions of the function's own parameters.
    """
    defaults = {name: value for stage in stages for name, value in _asked(cluster, stage).items()}
    descriptions = described | {
        f"{stage}_{name}": f"{field.description} Here for the stage {stage!r}."
        for stage in stages
        for name, field in Profile.model_fields.items()
    }

    def decorate(pipeline: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(pipeline)
        kept = [each for each in own.parameters.values() if each.name != "step_settings"]
        added = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=value, annotation=type(value))
            for name, value in defaults.items()
        ]
        signature = own.replace(parameters=[*kept, *added])

        @functools.wraps(pipeline)
        def with_step_settings(*values: Any) -> Any:
            given = signature.bind(*values).arguments
            asks = {name: given.pop(name) for name in defaults}
            with _without_source_lines():
                return pipeline(**given, step_settings=StepSettings(cluster, asks))

        with_step_settings.__signature__ = signature  # type: ignore[attr-defined]
        # KFP reads descriptions of parameters from a docstring.
        lines = [f"    {name}: {descriptions[name]}" for name in signature.parameters]
        with_step_settings.__doc__ = "\n".join(["Make the pipeline's steps.", "", "Args:", *lines])
        return with_step_settings

    return decorate


def _asked(cluster: Cluster, stage: StageName) -> dict[str, Any]:
    profile = cluster.profile_of(stage)
    asked: dict[str, Any] = {"cpu": profile.cpu, "memory": profile.memory}
    asked |= {"node_selector": dict(profile.node_selector), "tolerations": tolerated(profile)}
    if profile.accelerator:
        asked |= {"accelerator": profile.accelerator, "accelerator_count": str(profile.accelerator_count)}
    return {f"{stage}_{name}": value for name, value in asked.items()}


_ORIGINAL_STACK = inspect.stack


@contextlib.contextmanager
def _without_source_lines() -> Iterator[None]:
    """Keep `inspect.stack` from looking up source lines, as KFP calls it for each setting of a step.

    It looks for the source of every frame. If a frame has none, as two of `python -m`, it searches all modules:
    three quarters of the time of `python -m pipelines compile`.
    """
    inspect.stack = _stack
    try:
        yield
    finally:
        inspect.stack = _ORIGINAL_STACK  # always the original: two threads may overlap


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Return the caller's stack, innermost frame first, without source lines."""
    found = []
    frame = sys._getframe(1)
    while frame:
        code = frame.f_code
        frame_info = inspect.FrameInfo(
            frame=frame,
            filename=code.co_filename,
            lineno=frame.f_lineno,
            function=code.co_name,
            code_context=None,
            index=None,
        )
        found.append(frame_info)
        frame = frame.f_back
    return found
