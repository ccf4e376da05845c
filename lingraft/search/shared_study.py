"""The trials of a study in a storage that workers share, none of which is ever done twice.

Optuna hands out a queued trial by reading and then writing its state, which two processes on SQLite may do at once. So
nothing is queued here: a worker makes its trial RUNNING, with its parameters, and then looks whether there is an older
one of the same parameters that has not failed. Storages number trials one after another, so of two workers one sees
the other, and gives way. A trial whose worker has ended becomes FAIL, and whoever takes its parameters next has its
scores, and its checkpoint.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lingraft.config.search import Goal, Range
from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.search.heartbeat import LivenessMonitor, has_exited, heartbeat, process_identity
from lingraft.search.space import Choices, Params, params_key
from lingraft.search.storage import explain_errors, open_storage
from lingraft.stages.results import Trial

RECORD = "record"
"""Optuna's name for what was found by a trial, beside its scores."""
_REASON, _WORKER, _BEAT = "reason", "worker", "beat"
_TRIED, _TWIN = "tried", "twin"
_BEATS = 4
"""Signs of life in the time after which a worker is taken for lost."""
_DIRECTIONS = {
    Goal.SCORE: (StudyDirection.MAXIMIZE,),
    Goal.COMPUTE: (StudyDirection.MINIMIZE,),
    Goal.PARETO: (StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE),
}


class LeaseLostError(TrackingError):
    """A trial was taken for lost and given to another worker while its own was still at it."""


@dataclass(frozen=True)
class SharedStudy:
    """A study, for one worker."""

    storage: BaseStorage
    study: str
    address: str | None
    goal: Goal
    choices: Choices
    lost_after_s: float
    close: Callable[[], None]
    """Ends the connections to the storage."""
    _liveness: LivenessMonitor = field(default_factory=LivenessMonitor)

    @classmethod
    def open(cls, study: str, address: str | None, goal: Goal, choices: Choices, lost_after_s: float) -> "SharedStudy":
        """A study, new or begun.

        Raises:
            StorageError: the storage cannot be used.
        """
        storage, close = open_storage(address)
        with explain_errors(address):
            directions = _DIRECTIONS[goal]
            optuna.create_study(storage=storage, study_name=study, directions=directions, load_if_exists=True)
        return cls(storage, study, address, goal, choices, lost_after_s, close)

    @property
    def directions(self) -> Sequence[StudyDirection]:
        """Of the study's values."""
        return _DIRECTIONS[self.goal]

    @property
    def _study_id(self) -> int:
        return self.storage.get_study_id_from_name(self.study)

    def _id(self, number: int) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def trials(self) -> list[FrozenTrial]:
        """All that workers of ours have begun, but for those that gave way."""
        with explain_errors(self.address):
            found = self.storage.get_all_trials(self._study_id, deepcopy=False)
        return [each for each in found if _WORKER in each.user_attrs and each.user_attrs.get(_REASON) != _TWIN]

    def tried(self) -> dict[str, FrozenTrial]:
        """Trials that run or have ended for good, by the key of their parameters."""
        return {params_key(trial.params): trial for trial in reversed(self.trials()) if _is_taken(trial)}

    def abandoned(self) -> list[Params]:
        """Parameters of trials whose worker was lost, which nobody has taken up yet."""
        tried = self.tried()
        every = {params_key(trial.params): trial.params for trial in self.trials()}
        return [params for key, params in every.items() if key not in tried]

    def records(self) -> list[tuple[int, Trial]]:
        """What was found, by the number of the trial; those that failed have nothing."""
        return [
            (trial.number, Trial(**trial.user_attrs[RECORD]))
            for trial in self.trials()
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        ]

    def failures(self) -> dict[str, str]:
        """Why trials failed for good, by the key of their parameters."""
        failed = [trial for trial in self.trials() if trial.state is TrialState.FAIL and _is_taken(trial)]
        return {params_key(trial.params): str(trial.user_attrs[_REASON]) for trial in failed}

    def running(self) -> list[FrozenTrial]:
        """Those that workers are at."""
        return [trial for trial in self.trials() if trial.state is TrialState.RUNNING]

    def claim(self, params: Params) -> FrozenTrial | None:
        """Begin a trial, or take it up where its worker was lost; None where somebody else was faster.

        Raises:
            StorageError: the storage cannot be used.
        """
        key = params_key(params)
        if key in self.tried():
            return None
        scores = {look: score for trial in self._with_params(key) for look, score in trial.intermediate_values.items()}
        template = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=dict(params),
            distributions=distributions_of(self.choices),
            user_attrs={_WORKER: process_identity(), _BEAT: 0},
            intermediate_values=scores,
        )
        with explain_errors(self.address):
            own = self.storage.create_new_trial(self._study_id, template)
            number = self.storage.get_trial_number_from_id(own)
        first = self.tried()[key]
        if first.number == number:
            return first
        self._end_trial(number, TrialState.FAIL, {_REASON: _TWIN})
        return None

    def _with_params(self, key: str) -> list[FrozenTrial]:
        return [trial for trial in self.trials() if params_key(trial.params) == key]

    def other_scores(self, params: Params) -> list[Mapping[int, float]]:
        """Scores by look of all trials of other parameters."""
        return [trial.intermediate_values for trial in self.trials() if params_key(trial.params) != params_key(params)]

    def report(self, number: int, look: int, score: float) -> None:
        """Keep a score, also in a study of two goals, where Optuna's own `report` refuses.

        Raises:
            LeaseLostError: the trial has been given to another worker.
            StorageError: the storage cannot be used.
        """
        with self._holding_lease(number):
            self.storage.set_trial_intermediate_value(self._id(number), look, score)

    @contextlib.contextmanager
    def heartbeat(self, number: int) -> Iterator[None]:
        """Give signs of life meanwhile."""

        def beat(count: int) -> None:
            try:
                with self._holding_lease(number):
                    self.storage.set_trial_user_attr(self._id(number), _BEAT, count)
            except TrackingError as error:
                say(f"no sign of life of trial {number}: {error}")

        with heartbeat(beat, self.lost_after_s / _BEATS):
            yield

    def finish(self, number: int, record: Trial, values: Sequence[float] | None) -> None:
        """End a trial with what was found; without values it was stopped early.

        Raises:
            LeaseLostError: the trial has been given to another worker.
            StorageError: the storage cannot be used.
        """
        state = TrialState.PRUNED if values is None else TrialState.COMPLETE
        self._end_trial(number, state, {RECORD: record.model_dump(mode="json")}, values)

    def fail(self, number: int, reason: str) -> None:
        """End a trial that cannot be trained; it is not tried again."""
        self._end_trial(number, TrialState.FAIL, {_REASON: reason, _TRIED: True})

    def release(self, number: int, reason: str) -> None:
        """Give up a trial, for whoever takes it up."""
        self._end_trial(number, TrialState.FAIL, {_REASON: reason})

    def release_lost(self) -> list[FrozenTrial]:
        """Give up trials whose workers were lost; returns them."""
        gone = [trial for trial in self.running() if self._is_lost(trial)]
        for trial in gone:
            with contextlib.suppress(LeaseLostError):  # another worker has seen it, too
                self.release(trial.number, "its worker was lost")
        return gone

    def _is_lost(self, trial: FrozenTrial) -> bool:
        mark = trial.user_attrs.get(_WORKER)
        if mark == process_identity():  # begun by this process, and left
            return True
        silent_s = self._liveness.unchanged_s(trial.number, trial.user_attrs.get(_BEAT))
        return has_exited(mark) or silent_s >= self.lost_after_s

    def wait(self) -> None:
        """A while, until something may have changed."""
        time.sleep(min(5.0, self.lost_after_s / _BEATS))

    @contextlib.contextmanager
    def _holding_lease(self, number: int) -> Iterator[None]:
        try:
            with explain_errors(self.address):
                yield
        except UpdateFinishedTrialError as error:
            raise LeaseLostError(
                f"trial {number} was ended by another worker, which took this one for lost."
            ) from error

    def _end_trial(
        self, number: int, state: TrialState, facts: Mapping[str, Any], values: Sequence[float] | None = None
    ) -> None:
        with self._holding_lease(number):
            for name, value in facts.items():
                self.storage.set_trial_user_attr(self._id(number), name, value)
            self.storage.set_trial_state_values(self._id(number), state, values)


def _is_taken(trial: FrozenTrial) -> bool:
    return trial.state is not TrialState.FAIL or bool(trial.user_attrs.get(_TRIED))


def distributions_of(choices: Choices) -> dict[str, BaseDistribution]:
    """The same as Optuna has it."""
    return {
        name: FloatDistribution(found.low, found.high, log=True)
        if isinstance(found, Range)
        else CategoricalDistribution(found)
        for name, found in choices.items()
    }
