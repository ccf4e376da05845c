"""A study in a storage that workers share, in which no trial runs twice.

Optuna hands out a queued trial by reading and then writing its state, which two processes on SQLite may do at the same
time. So nothing is queued here: a worker creates its trial as RUNNING, with its parameters, and then checks whether an
older trial of the same parameters has not failed. Storages number trials one after another, so of two workers one sees
the other, and gives way. A trial whose worker has ended becomes FAIL; the worker that claims its parameters next gets
its scores and its checkpoint.
"""

import contextlib
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
"""Name of the Optuna attribute that holds the record of a trial."""
_REASON = "reason"
_WORKER = "worker"
_BEAT = "beat"
_TRIED = "tried"
_TWIN = "twin"
_BEATS = 4
"""Number of heartbeats in the time after which a worker counts as lost."""
_DIRECTIONS = {
    Goal.SCORE: (StudyDirection.MAXIMIZE,),
    Goal.COMPUTE: (StudyDirection.MINIMIZE,),
    Goal.PARETO: (StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE),
}


class LeaseLostError(TrackingError):
    """Another worker took a trial for lost and ended it while its own worker still trained it."""


@dataclass(frozen=True)
class SharedStudy:
    """A study as one worker sees it.

    All methods raise StorageError if the storage cannot be used. Those that write about a trial raise LeaseLostError if
    the trial has been given to another worker.
    """

    storage: BaseStorage
    study: str
    address: str | None
    goal: Goal
    choices: Choices
    lost_after_s: float
    close: Callable[[], None]
    """Function that closes the connections to the storage."""
    _liveness: LivenessMonitor = field(default_factory=LivenessMonitor)

    @classmethod
    def open(cls, study: str, address: str | None, goal: Goal, choices: Choices, lost_after_s: float) -> "SharedStudy":
        """Open a study, or create it."""
        storage, close = open_storage(address)
        with explain_errors(address):
            directions = _DIRECTIONS[goal]
            optuna.create_study(storage=storage, study_name=study, directions=directions, load_if_exists=True)
        return cls(
            storage=storage,
            study=study,
            address=address,
            goal=goal,
            choices=choices,
            lost_after_s=lost_after_s,
            close=close,
        )

    @property
    def directions(self) -> Sequence[StudyDirection]:
        """Optimization directions of the study's values."""
        return _DIRECTIONS[self.goal]

    @property
    def _study_id(self) -> int:
        return self.storage.get_study_id_from_name(self.study)

    def _id(self, number: int) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials that our workers have begun, without those that gave way to another worker."""
        with explain_errors(self.address):
            found = self.storage.get_all_trials(self._study_id, deepcopy=False)
        return [each for each in found if _WORKER in each.user_attrs and each.user_attrs.get(_REASON) != _TWIN]

    def tried(self) -> dict[str, FrozenTrial]:
        """Return trials that run or have ended for good, by the key of their parameters."""
        return {params_key(trial.params): trial for trial in reversed(self.trials()) if _is_taken(trial)}

    def abandoned(self) -> list[Params]:
        """Return parameters of trials whose worker was lost and that nobody has claimed since."""
        tried = self.tried()
        every = {params_key(trial.params): trial.params for trial in self.trials()}
        return [params for key, params in every.items() if key not in tried]

    def records(self) -> list[tuple[int, Trial]]:
        """Return numbers and records of finished trials; failed trials have no record."""
        return [
            (trial.number, Trial(**trial.user_attrs[RECORD]))
            for trial in self.trials()
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        ]

    def failures(self) -> dict[str, str]:
        """Return the reasons of trials that failed for good, by the key of their parameters."""
        failed = [trial for trial in self.trials() if trial.state is TrialState.FAIL and _is_taken(trial)]
        return {params_key(trial.params): str(trial.user_attrs[_REASON]) for trial in failed}

    def running(self) -> list[FrozenTrial]:
        """Return the trials that workers are training."""
        return [trial for trial in self.trials() if trial.state is TrialState.RUNNING]

    def claim(self, params: Params) -> FrozenTrial | None:
        """Begin a trial, or resume one whose worker was lost; return None if another worker was faster."""
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
        """Return scores by evaluation of all trials of other parameters."""
        return [trial.intermediate_values for trial in self.trials() if params_key(trial.params) != params_key(params)]

    def report(self, number: int, look: int, score: float) -> None:
        """Store a score, also in a study of two goals, where Optuna's own `report` refuses."""
        with self._holding_lease(number):
            self.storage.set_trial_intermediate_value(self._id(number), look, score)

    @contextlib.contextmanager
    def heartbeat(self, number: int) -> Iterator[None]:
        """Send heartbeats for a trial while the context is open."""

        def beat(count: int) -> None:
            try:
                with self._holding_lease(number):
                    self.storage.set_trial_user_attr(self._id(number), _BEAT, count)
            except TrackingError as error:
                say(f"no sign of life of trial {number}: {error}")

        with heartbeat(beat, self.lost_after_s / _BEATS):
            yield

    def finish(self, number: int, record: Trial, values: Sequence[float] | None) -> None:
        """End a trial with its record; a trial without values was pruned."""
        state = TrialState.PRUNED if values is None else TrialState.COMPLETE
        self._end_trial(number, state, {RECORD: record.model_dump(mode="json")}, values)

    def fail(self, number: int, reason: str) -> None:
        """End a trial that cannot be trained; it is not tried again."""
        self._end_trial(number, TrialState.FAIL, {_REASON: reason, _TRIED: True})

    def release(self, number: int, reason: str) -> None:
        """Give up a trial, so that another worker can claim it."""
        self._end_trial(number, TrialState.FAIL, {_REASON: reason})

    def release_lost(self) -> list[FrozenTrial]:
        """Release the trials whose workers were lost, and return them."""
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

    @property
    def poll_s(self) -> float:
        """Seconds after which another worker may have changed something."""
        return min(5.0, self.lost_after_s / _BEATS)

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
    """Return Optuna's distributions of the choices."""
    return {
        name: FloatDistribution(found.low, found.high, log=True)
        if isinstance(found, Range)
        else CategoricalDistribution(found)
        for name, found in choices.items()
    }
