"""Collective operations of processes that train together as `torchrun` starts them; alone, they cost nothing.

A recipe states the global batch. Each process computes its part, and gradients are averaged over all of them. They
begin with the same weights and take the same steps, so their weights stay the same bit for bit.
"""

import atexit
import os

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from lingraft.errors import TrainingError
from lingraft.ranks import rank, world_size

_PARENT = os.getppid()


def data_parallel(loss_of: nn.Module) -> nn.Module:
    """Wrap a loss so that its backward pass averages gradients over all processes while it computes them.

    Rank zero's weights become everybody's. Gradients stay where they arrive, so there is no second copy of them.
    Buffers, such as rows that a language borrows, never change.
    """
    if world_size() == 1:
        return loss_of
    init_process_group()
    return nn.parallel.DistributedDataParallel(loss_of, broadcast_buffers=False, gradient_as_bucket_view=True)


def all_reduce_sum(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes; on a GPU nothing waits for it."""
    if world_size() > 1:
        init_process_group()
        value = value.clone()
        distributed.all_reduce(value)
    return value


def all_reduce_max(value: int) -> int:
    """Return the highest of all processes' numbers, so that all of them decide alike; no GPU is waited for."""
    if world_size() == 1:
        return value
    init_process_group()
    found = torch.tensor(value)
    distributed.all_reduce(found, distributed.ReduceOp.MAX)
    return int(found)


def broadcast(value: float) -> float:
    """Return rank zero's number, such as a measurement, since no two machines measure the same."""
    if world_size() == 1:
        return value
    init_process_group()
    found = torch.tensor(value, dtype=torch.float64)
    distributed.broadcast(found, src=0)
    return float(found)


def barrier() -> None:
    """Wait until all processes have come this far."""
    all_reduce_max(0)


def parent_died() -> bool:
    """Return whether the `torchrun` that started this process is gone, so that nobody would end it."""
    return world_size() > 1 and os.getppid() != _PARENT


def init_process_group() -> None:
    """Connect to the other processes, if there are any, each with a GPU of its own where there are GPUs.

    `torchrun` ends all processes when one is lost.

    Raises:
        TrainingError: more processes than GPUs were started.
    """
    if world_size() == 1 or distributed.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.is_available():
        _take_gpu(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, store=_store(), rank=rank(), world_size=world_size())
    atexit.register(distributed.destroy_process_group)


def _store() -> Store:
    """Return the store in which processes leave their addresses for each other.

    `torchrun` keeps one store over its restarts (pytorch issue 135712), so that an address of a process that is gone
    could be read before the new one is written; on one machine the number of restarts keeps them apart. On several
    machines each counts for itself: docs/guides/several-gpus.md says what to set there.
    """
    store, _, _ = next(rendezvous("env://"))
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    return store


def _take_gpu(number: int) -> None:
    if number >= torch.cuda.device_count():
        raise TrainingError(
            f"{number + 1} processes or more were started here, but there are {torch.cuda.device_count()} GPUs. "
            "Start one process a GPU."
        )
    torch.cuda.set_device(number)
