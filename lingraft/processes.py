"""Training on several processes at once, as `torchrun` starts them; without it, one process leads and is alone.

A recipe states the global batch. Each process computes its part, and gradients are averaged over all of them.
"""

import atexit
import os

import torch
from torch import Tensor, distributed, nn


def count() -> int:
    """Processes that train together."""
    _join()
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """Number of this process, from 0."""
    _join()
    return distributed.get_rank() if distributed.is_initialized() else 0


def leads() -> bool:
    """Whether this is the process that writes, tracks and shows progress."""
    return rank() == 0


def parallel(loss_of: nn.Module) -> nn.Module:
    """The same loss; its backward pass averages gradients over all processes while it computes them."""
    if count() == 1:
        return loss_of
    return nn.parallel.DistributedDataParallel(loss_of)


def total(value: Tensor) -> Tensor:
    """Sum of a tensor over all processes."""
    if count() > 1:
        value = value.clone()
        distributed.all_reduce(value)
    return value


def highest(value: int) -> int:
    """The highest of all processes' numbers, so that all of them decide alike; no device is waited for."""
    if count() == 1:
        return value
    found = torch.tensor(value)
    distributed.all_reduce(found, distributed.ReduceOp.MAX)
    return int(found)


def wait() -> None:
    """Until all processes have come this far."""
    highest(0)


def _join() -> None:
    """Meet the others, if `torchrun` has started any; whoever is lost ends all, torchrun sees to that."""
    if distributed.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend)
    atexit.register(distributed.destroy_process_group)
