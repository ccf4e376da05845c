"""Parts of a training step that Inductor fuses on a GPU: docs/decisions/0023-gpu-path.md."""

import functools
import subprocess
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

_MOST_GRAPHS = 64
"""Graphs of one function: of frozen and trained layers, the first, global and local ones. Beyond torch's own limit
of 8 the others would run uncompiled."""


@functools.cache
def compiled(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Return a function compiled by Inductor, the same for all callers; its first call of a kind takes seconds."""
    torch._dynamo.config.recompile_limit = _MOST_GRAPHS
    return torch.compile(function)


@functools.cache
def compiler_error(device: torch.device) -> str | None:
    """Try to compile for a device; return what went wrong, such as a missing Triton or C compiler, or None."""
    try:
        torch.compile(_plus_one)(torch.zeros(2, device=device))
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def _plus_one(values: Tensor) -> Tensor:
    return values + 1
