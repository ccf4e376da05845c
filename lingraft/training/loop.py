"""THE loop: pretraining, step 1b, adaptation and finetuning differ in loss, trainable parameters and batches only."""

import functools
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lingraft.data.rng import derive_seed
from lingraft.errors import TrainingError
from lingraft.signals import Interruption, StopRequest, stop_signals
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed import process_group
from lingraft.training.optimizer import Optimizer
from lingraft.training.precision import AutocastFactory, preserve_rng
from lingraft.training.prefetch import Prefetcher, prefetch
from lingraft.training.schedule import Schedule, TrainingMetrics
from lingraft.training.skipped_steps import SkippedSteps
from lingraft.training.state import TrainingState
from lingraft.training.stopwatch import Stopwatch

Batch = TypeVar("Batch")
MicroBatches = Sequence[tuple[float, Batch]]
"""Of one step and process; each with its share in the mean over the global batch."""
Stream = Callable[[int], MicroBatches[Batch]]
"""The micro-batches of a step; steps count from 1."""
_CONTINUE, _SAVE, _STOP = range(3)
_REMEDY = "Lower the learning rate, lengthen the warm-up, or use precision = 'fp32'."


def train(
    loss_of: nn.Module,
    parameters: Sequence[nn.Parameter],
    stream: Stream[Batch],
    plan: Schedule,
    precise: AutocastFactory,
    state: TrainingState | None = None,
    checkpointer: CheckpointManager | None = None,
    judge: Callable[[], float] | None = None,
    dev_loss: Callable[[], float] | None = None,
) -> Generator[TrainingMetrics, None, None]:
    """Train, and yield a point of the learning curve every `log_every_steps` steps, at the stops, and after the last.

    The caller may look, evaluate or stop between points; that time does not count. In the end the parameters are
    those after the last step or, where there is a `judge` and no phase is to follow, those of the best dev score.

    Args:
        loss_of: gives the loss of a batch, a scalar.
        parameters: what is trained; nothing else gets a gradient or optimizer state.
        stream: what to train on.
        plan: length and schedule.
        precise: number format of the forward pass.
        state: where to go on from; the beginning if absent.
        checkpointer: writes checkpoints on the way, if any are wanted.
        judge: the dev score, the higher the better; asked where the plan says.
        dev_loss: the same for the dev loss, by which a phase ends whose plan has a plateau.

    Raises:
        TrainingError: more steps than the plan allows, or the last ones, had a loss or a gradient that is not finite.
        Interruption: the process was asked to stop, and a checkpoint was written.
    """
    state, looks = state or TrainingState(), (judge, dev_loss)
    if checkpointer:
        checkpointer.ended = None
    optimizer, parallel = Optimizer(parameters, plan.weight_decay, plan.clip_norm), process_group.data_parallel(loss_of)
    _restore_optimizer(state, optimizer)
    left_out, watch = SkippedSteps(state.left_out), Stopwatch(state.elapsed_s)
    with stop_signals() if checkpointer else nullcontext(StopRequest()) as notice:
        yield from _log_point(state, plan, looks, parameters, notice)
        steps = range(state.step + 1, 1 + (state.step if state.ended(plan) else plan.last_step))
        batches = prefetch(map(stream, steps))
        _checkpoint_or_stop(_next_action(notice, checkpointer, batches), notice, checkpointer, state, optimizer)
        for step, micro_batches in zip(steps, batches, strict=True):
            loss = _backward(parallel, micro_batches, plan, step, precise, notice)
            if loss is not None:
                left_out.add(step, optimizer.step(plan.learning_rate_at(step), loss))
                left_out.settle(waiting=0 if plan.told_at(step) else 1)
                _require_few_skipped(left_out, plan, stream, checkpointer)
                state.step, state.elapsed_s = step, watch.elapsed_s
                state.losses.append(loss)
                with watch.paused():
                    yield from _log_point(state, plan, looks, parameters, notice)
                if state.ended(plan):
                    break
            order = _STOP if loss is None else _next_action(notice, checkpointer, batches)
            if order != _CONTINUE:
                left_out.settle()
            _checkpoint_or_stop(order, notice, checkpointer, state, optimizer)
        _require_finite_end(left_out, plan, state, stream, checkpointer)
        state.optimizer = optimizer.tensors()
        if checkpointer:
            checkpointer.ended = state
        if plan.is_last:
            state.best.put_back(parameters)


def _restore_optimizer(state: TrainingState, optimizer: Optimizer) -> None:
    """Go on from the tensors of a checkpoint, and let go of them: they are as large as all that trains."""
    if state.optimizer:
        optimizer.restore(state.optimizer)
        state.optimizer = {}
    state.losses = [loss.to(optimizer.parameters[0].device) for loss in state.losses]


def _backward(
    loss_of: nn.Module,
    micro_batches: MicroBatches[Batch],
    plan: Schedule,
    step: int,
    precise: AutocastFactory,
    notice: StopRequest,
) -> Tensor | None:
    """Gradients of the mean loss of a step's global batch; its loss, or None if asked to stop in the middle."""
    losses: list[Tensor] = []
    first = process_group.rank() * len(micro_batches)
    with preserve_rng():
        for number, (share, batch) in enumerate(micro_batches):
            if number and process_group.all_reduce_max(notice.signal_number):  # after every step all have asked anyway
                return None
            torch.manual_seed(derive_seed("dropout", plan.seed, step, first + number))
            with _no_sync(loss_of, number + 1 < len(micro_batches)):
                with precise():
                    loss = loss_of(batch)
                (loss * (share * process_group.world_size())).backward()
            losses.append(loss.detach() * share)
    return process_group.all_reduce_sum(functools.reduce(torch.add, losses))


def _no_sync(loss_of: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Gradients of all micro-batches but the last stay with the process."""
    return loss_of.no_sync() if wanted and isinstance(loss_of, DistributedDataParallel) else nullcontext()


def _log_point(
    state: TrainingState,
    plan: Schedule,
    looks: tuple[Callable[[], float] | None, Callable[[], float] | None],
    parameters: Sequence[nn.Parameter],
    notice: StopRequest,
) -> Iterator[TrainingMetrics]:
    """The point of the learning curve after a step, if there is to be one and it has not been told before.

    Who is asked to stop while it looks at dev score or loss tells it when training goes on.
    """
    if not (state.losses and plan.told_at(state.step)):
        return
    found: list[float | None] = []
    for look, wanted in zip(looks, (plan.judged_at(state.step), plan.looked_at(state.step)), strict=True):
        seen = notice.unless_asked(look) if look and wanted else None
        if look and wanted and process_group.all_reduce_max(seen is None):
            return
        found.append(None if seen is None else process_group.broadcast(seen))
    score, dev_loss = found
    if score is not None:
        state.best.look(score, state.step, parameters)
    losses_S = torch.stack(state.losses).float()
    loss = float(losses_S[losses_S.isfinite()].mean())
    state.losses.clear()
    state.points.append(plan.point(state.step, state.elapsed_s, loss, score, len(state.left_out), dev_loss))
    yield state.points[-1]


def _require_few_skipped(
    left_out: SkippedSteps, plan: Schedule, stream: Stream[Batch], checkpointer: CheckpointManager | None
) -> None:
    if len(left_out.steps) <= plan.skipped_steps:
        return
    step = left_out.steps[-1]
    raise TrainingError(
        f"{_not_finite(plan, step)}, and {len(left_out.steps) - 1} steps were left out before it, of "
        f"{plan.skipped_steps} that may be.{_save_batch(plan, step, stream, checkpointer)} {_REMEDY}"
    )


def _require_finite_end(
    left_out: SkippedSteps,
    plan: Schedule,
    state: TrainingState,
    stream: Stream[Batch],
    checkpointer: CheckpointManager | None,
) -> None:
    """One step may be left out by accident, also the last one; of weights that give no finite loss any more none is."""
    last = {max(state.step - 1, 1), state.step}
    if last <= {*left_out.steps}:
        kept = _save_batch(plan, state.step, stream, checkpointer)
        raise TrainingError(f"{_not_finite(plan, state.step)}, with which training ended.{kept} {_REMEDY}")


def _save_batch(plan: Schedule, step: int, stream: Stream[Batch], checkpointer: CheckpointManager | None) -> str:
    return f" {checkpointer.keep_batch(step, plan.learning_rate_at(step), stream(step))}" if checkpointer else ""


def _not_finite(plan: Schedule, step: int) -> str:
    rate = f"learning rate {plan.learning_rate_at(step):.2e}"
    return f"the loss or a gradient is not finite at step {step} of {plan.steps} ({rate})"


def _next_action(
    notice: StopRequest, checkpointer: CheckpointManager | None, batches: Prefetcher[MicroBatches[Batch]]
) -> int:
    """What all processes do before the next step, whose batch is there; who is asked to stop does not wait for it."""
    if checkpointer is None:
        return _CONTINUE
    batches.wait(unless=lambda: _stop_requested(notice))
    return process_group.all_reduce_max(
        _STOP if _stop_requested(notice) else _SAVE if checkpointer.due() else _CONTINUE
    )


def _stop_requested(notice: StopRequest) -> int:
    """The signal that asks to stop, 0 if none does; without a `torchrun` above it, a process has been told, too."""
    return notice.signal_number or (signal.SIGTERM if process_group.parent_died() else 0)


def _checkpoint_or_stop(
    order: int, notice: StopRequest, checkpointer: CheckpointManager | None, state: TrainingState, optimizer: Optimizer
) -> None:
    if checkpointer is None or order == _CONTINUE:
        return
    state.optimizer = optimizer.tensors()
    checkpointer.keep(state, last=order == _STOP)
    if order == _STOP:
        checkpointer.settle()
        signal_number = process_group.all_reduce_max(_stop_requested(notice))  # not every process has been asked
        raise Interruption(signal_number, f"asked to stop after step {state.step}; {checkpointer.resume_hint()}")
