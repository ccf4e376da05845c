"""The training loop: stages that train differ in model, trained parameters and batches."""

import functools
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lingraft import ranks
from lingraft.data.rng import derive_seed
from lingraft.errors import TrainingError
from lingraft.signals import Interruption, StopRequest, stop_signals
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed import process_group
from lingraft.training.optimizer import Optimizer, SkippedSteps
from lingraft.training.precision import AutocastFactory, preserve_rng, tf32_products
from lingraft.training.schedule import Schedule, TrainingMetrics
from lingraft.training.training_state import TrainingState

MicroBatches = Sequence[tuple[float, Any]]
"""Micro-batches of one step and process, each with its share of the mean over the global batch."""
Stream = Callable[[int], MicroBatches]
"""Returns the micro-batches of a step; steps count from 1."""
_CONTINUE, _SAVE, _STOP = range(3)
_REMEDY = "Lower the learning rate, lengthen the warm-up, or use precision = 'fp32'."


class Plan(NamedTuple):
    """The loss that a training minimises, and its schedule."""

    loss_of: nn.Module
    """Returns the loss of a batch, a scalar."""
    schedule: Schedule


@dataclass
class TrainingLoop:
    """One training, from its beginning or from a checkpoint."""

    parameters: Sequence[nn.Parameter]
    """All that is trained; nothing else has a gradient."""
    stream: Stream
    autocast: AutocastFactory
    checkpointer: CheckpointManager | None = None
    state: TrainingState = field(default_factory=TrainingState)
    sparse_tables: Sequence[nn.Parameter] = ()
    """Parameters of which a step updates only the rows that have a gradient."""

    def run(self, plan: Plan) -> Generator[TrainingMetrics, None, None]:
        """Train, and yield the points of the learning curve; the time between points does not count.

        The caller may evaluate, save or stop at a point. In the end the parameters are those after the last step.

        Raises:
            TrainingError: too many steps, or the last ones, had a loss or a gradient that is not finite.
            Interruption: the process was asked to stop, and a checkpoint was written.
        """
        schedule, state, checkpointer = plan.schedule, self.state, self.checkpointer
        optimizer = Optimizer(
            parameters=self.parameters,
            weight_decay=schedule.weight_decay,
            clip_norm=schedule.clip_norm,
            sparse_tables=self.sparse_tables,
        )
        skipped = SkippedSteps(state.skipped)
        model = process_group.data_parallel(plan.loss_of)
        self._restore(optimizer)
        with stop_signals() if checkpointer else nullcontext(StopRequest()) as stop:
            steps = range(state.step + 1, schedule.steps + 1)
            self._checkpoint_or_stop(optimizer, skipped, stop)
            resumed_at_s = time.perf_counter()
            for step in steps:
                loss = _forward_backward(
                    model=model,
                    micro_batches=self.stream(step),
                    step=step,
                    seed=schedule.seed,
                    autocast=self.autocast,
                    stop=stop,
                )
                if loss is None:  # asked to stop between micro-batches; the next run takes the step
                    self._stop(optimizer, skipped, stop)
                skipped.add(step, optimizer.clip(loss))
                optimizer.step(schedule.learning_rate_at(step))
                skipped.settle(waiting=0 if schedule.logs_at(step) else 1)
                self._require_few_skipped(schedule)
                state.step = step
                state.losses.append(loss)
                state.elapsed_s += time.perf_counter() - resumed_at_s
                if schedule.logs_at(step):
                    yield self._log(schedule)
                resumed_at_s = time.perf_counter()
                self._checkpoint_or_stop(optimizer, skipped, stop)
            self._snapshot(optimizer, skipped)
            self._require_finite_end(schedule)
            if checkpointer:
                checkpointer.ended = state

    def _restore(self, optimizer: Optimizer) -> None:
        """Go on from the tensors of a checkpoint, and let go of them: they are as large as all that is trained."""
        if self.checkpointer:
            self.checkpointer.ended = None
        if self.state.optimizer:
            optimizer.restore(self.state.optimizer)
            self.state.optimizer = {}
        self.state.losses = [loss.to(self.parameters[0].device) for loss in self.state.losses]

    def _log(self, schedule: Schedule) -> TrainingMetrics:
        """Add the point after the current step to the learning curve, and return it."""
        state = self.state
        losses_S = torch.stack(state.losses).float()
        state.losses.clear()
        point = TrainingMetrics(
            step=state.step,
            tokens=state.step * schedule.tokens_per_step,
            flops=state.step * schedule.flops_per_step,
            elapsed_s=state.elapsed_s,
            loss=float(losses_S[losses_S.isfinite()].mean()),
            learning_rate=schedule.learning_rate_at(state.step),
            left_out_steps=len(state.skipped),
        )
        state.points.append(point)
        return point

    def _checkpoint_or_stop(self, optimizer: Optimizer, skipped: SkippedSteps, stop: StopRequest) -> None:
        if self.checkpointer is None:
            return
        wanted = _STOP if _stop_signal(stop) else _SAVE if self.checkpointer.is_due() else _CONTINUE
        action = process_group.all_reduce_max(wanted)
        if action == _STOP:
            self._stop(optimizer, skipped, stop)
        if action == _SAVE:
            self.checkpointer.save(self._snapshot(optimizer, skipped))

    def _stop(self, optimizer: Optimizer, skipped: SkippedSteps, stop: StopRequest) -> NoReturn:
        state = self._snapshot(optimizer, skipped)
        hint = "nothing was written."
        if self.checkpointer:
            self.checkpointer.save(state, last=True)
            self.checkpointer.wait()
            hint = self.checkpointer.resume_hint()
        number = process_group.all_reduce_max(_stop_signal(stop))  # not every process has been asked
        raise Interruption(number, f"asked to stop after step {state.step}; {hint}")

    def _snapshot(self, optimizer: Optimizer, skipped: SkippedSteps) -> TrainingState:
        """Bring the state up to date, weights and moments included."""
        skipped.settle()
        self.state.optimizer = optimizer.tensors()
        return self.state

    def _require_few_skipped(self, schedule: Schedule) -> None:
        skipped = self.state.skipped
        if len(skipped) > schedule.skipped_steps:
            raise self._not_finite(
                schedule,
                skipped[-1],
                f", and {len(skipped) - 1} steps were left out before it, of {schedule.skipped_steps} that may be.",
            )

    def _require_finite_end(self, schedule: Schedule) -> None:
        """One step may be skipped by accident, also the last one; weights whose loss is never finite are no result."""
        if {max(self.state.step - 1, 1), self.state.step} <= {*self.state.skipped}:
            raise self._not_finite(schedule, self.state.step, ", with which training ended.")

    def _not_finite(self, schedule: Schedule, step: int, what: str) -> TrainingError:
        rate = schedule.learning_rate_at(step)
        return TrainingError(
            f"the loss or a gradient is not finite at step {step} of {schedule.steps} (learning rate {rate:.2e})"
            f"{what} {_REMEDY}"
        )


def _forward_backward(
    model: nn.Module, micro_batches: MicroBatches, step: int, seed: int, autocast: AutocastFactory, stop: StopRequest
) -> Tensor | None:
    """Add up the gradients of a step's micro-batches; the mean loss of the global batch, or None if asked to stop."""
    losses: list[Tensor] = []
    first = ranks.rank() * len(micro_batches)
    with preserve_rng(), tf32_products():
        for number, (share, batch) in enumerate(micro_batches):
            if number and process_group.all_reduce_max(stop.signal_number):  # all have asked before the first one
                return None
            torch.manual_seed(derive_seed("dropout", seed, step, first + number))
            is_last = number + 1 == len(micro_batches)
            # Gradients of all micro-batches but the last stay with the process.
            with model.no_sync() if isinstance(model, DistributedDataParallel) and not is_last else nullcontext():
                with autocast():
                    loss = model(batch)
                (loss * (share * ranks.world_size())).backward()
            losses.append(loss.detach() * share)
    return process_group.all_reduce_sum(functools.reduce(torch.add, losses))


def _stop_signal(stop: StopRequest) -> int:
    """Return the signal that asks to stop, or 0; a process whose `torchrun` is gone has been asked, too."""
    return stop.signal_number or (signal.SIGTERM if process_group.parent_died() else 0)
