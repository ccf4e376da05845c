"""A worker: it runs trial after trial until all trials of a search have ended, then writes the result."""

import contextlib
import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path

from optuna.trial import FrozenTrial

from lingraft.artifacts import sync
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import require_new
from lingraft.artifacts.remote import uri_of
from lingraft.config.recipe import Recipe
from lingraft.config.search import Goal
from lingraft.console import say
from lingraft.errors import TrackingError, TrainingError
from lingraft.reports.paper.efficiency import LearningCurve
from lingraft.retry import poll
from lingraft.search import outcome
from lingraft.search.pruning import should_prune
from lingraft.search.sampling import sample_untried
from lingraft.search.shared_study import LeaseLostError, SharedStudy
from lingraft.search.space import Params, describe, params_key, planned_trials, search_space
from lingraft.search.trial import ClaimedTrial, Inputs, Trainer
from lingraft.search.trial_order import order_depths
from lingraft.stages.results import Trial
from lingraft.training.schedule import MetricsCallback, ignore_metrics

__all__ = ["Inputs", "search", "work"]


def search(
    recipe: Recipe,
    inputs: Inputs,
    storage: str | None,
    out: Path,
    known: Mapping[str, int] | None = None,
    state: Path | None = None,
    watch: MetricsCallback = ignore_metrics,
) -> Artifact:
    """Choose the depth that the recipe's goal asks for, all depths compared at equal FLOPs, and give the reason.

    A trial is scored on the dev split by the primary with the trial's rows swapped in, as it will be served, and not by
    its own mini-model. Processes with the same storage share the trials; another worker resumes a trial whose worker
    was lost, from its checkpoint where it can read that.

    Args:
        recipe: recipe with a [search] section.
        inputs: folders that the search reads.
        storage: an Optuna storage URL, or `journal:///FILE`; a search that was interrupted goes on from there. None
            keeps it in memory.
        out: folder of the result.
        known: best depths of other languages, which order the trials.
        state: folder of checkpoints, unless `LINGRAFT_RESULTS` names one; `<out>.training` if absent.
        watch: called with every point of each trial.
    """
    require_new(out)
    outcome.require_plotting()
    place = state or out.with_name(f"{out.name}.training")
    worker = _SearchWorker(recipe=recipe, inputs=inputs, storage=storage, known=known or {}, state=place, watch=watch)
    with closing(worker.study):
        worker.work()
        made = outcome.write_result(worker.study, worker.trainer, worker.order, worker.target, out)
    with contextlib.suppress(OSError):  # it stays where it is not empty
        place.rmdir()
    return made


def work(
    recipe: Recipe,
    inputs: Inputs,
    storage: str | None,
    known: Mapping[str, int],
    watch: MetricsCallback = ignore_metrics,
) -> list[Trial]:
    """Take part in a search until all its trials have ended; return the trials of this worker.

    Args:
        recipe: recipe with a [search] section.
        inputs: folders that the search reads.
        storage: shared with other workers.
        known: best depths of other languages, which order the trials.
        watch: called with every point of each trial of this worker.
    """
    if storage is None:
        raise TrackingError(
            "workers of a search share its trials in a storage, but none is given. Set LINGRAFT_SEARCH_STORAGE to a "
            "PostgreSQL URL, or LINGRAFT_RESULTS to a folder of all workers."
        )
    with tempfile.TemporaryDirectory(prefix="lingraft-") as state:
        worker = _SearchWorker(
            recipe=recipe, inputs=inputs, storage=storage, known=known, state=Path(state), watch=watch
        )
        with closing(worker.study):
            worker.work()
        return worker.finished


def shared_storage(given: str | None) -> str | None:
    """Return the storage that workers of a pipeline share: the given one, or a journal in their results folder."""
    where = os.environ.get(sync.RESULTS_VARIABLE)
    if given or where is None or uri_of(where):
        return given
    Path(where).mkdir(parents=True, exist_ok=True)
    return f"journal:///{Path(where).resolve() / 'searches.log'}"


class _SearchWorker:
    def __init__(
        self,
        recipe: Recipe,
        inputs: Inputs,
        storage: str | None,
        known: Mapping[str, int],
        state: Path,
        watch: MetricsCallback,
    ) -> None:
        self.recipe = recipe
        self.search = recipe.require_search()
        self.trainer = Trainer(recipe, inputs, state, watch)
        name = f"{recipe.name}-{self.search.language}-{self.trainer.fingerprint()[:12]}"
        choices = search_space(recipe)
        goal = self.search.goal
        self.study = SharedStudy.open(name, storage, goal, choices, self.search.lost_after_s)
        self.order = order_depths(recipe, known)
        self.finished: list[Trial] = []

    def work(self) -> None:
        """Run trials, and wait for those of other workers, until all have ended."""
        for _ in poll(self.study.poll_s):
            self._release_lost()
            while (params := self._next_params()) is not None:
                if trial := self.study.claim(params):
                    self._run_trial(trial)
                self._release_lost()
            if not self.study.running():
                return

    def _release_lost(self) -> None:
        for trial in self.study.release_lost():
            say(f"the worker of trial {trial.number}, {describe(trial.params)}, was lost; it goes on elsewhere")

    def _next_params(self) -> Params | None:
        """Parameters to try next; None if there are none, or none before other trials have ended."""
        tried = self.study.tried()
        if self._reference:
            if (key := params_key(self._reference)) not in tried:
                return self._reference
            if not tried[key].state.is_finished():
                return None
        left = [*self.study.abandoned(), *planned_trials(self.recipe, self.order.depths)]
        untried = next((params for params in left if params_key(params) not in tried), None)
        if untried is None and len(tried) < (self.search.trials or 0):
            return sample_untried(self.study, self.recipe.adaptation.seed)
        return untried

    @cached_property
    def _reference(self) -> Params | None:
        """Parameters of the trial whose final score the target is a share of; None without such a trial."""
        if self.search.goal is not Goal.COMPUTE or self.search.target_score:
            return None
        depth = self.search.reference_depth or max(self.recipe.searched_depths)
        return max(planned_trials(self.recipe, [depth]), key=lambda params: params.get("budget_share", 1.0))

    @property
    def target(self) -> float | None:
        """Score to reach for goal compute, once it is known."""
        if self._reference is None:
            return self.search.target_score
        key = params_key(self._reference)
        found = {number: trial.score for number, trial in self.study.records()}
        ended = self.study.tried().get(key)
        if ended is None or ended.number not in found:
            return None
        return self.search.target_share * found[ended.number]

    def _run_trial(self, trial: FrozenTrial) -> None:
        number = trial.number
        target = self.target
        is_reference = self._reference is not None and params_key(trial.params) == params_key(self._reference)

        def ends(scores: dict[int, float], last: int) -> bool:
            if is_reference:
                return False
            if target is not None and max(scores.values()) >= target:
                return True
            looks = range(math.ceil(self.search.grace_share * self.search.looks), last + 1)
            return should_prune(self.search.goal, scores, looks, self.study.other_scores(trial.params), target)

        attempt = ClaimedTrial(
            number=number,
            params=trial.params,
            scores=dict(trial.intermediate_values),
            report=lambda look, score: self.study.report(number, look, score),
            should_stop=ends,
            finish=lambda found: self._finish(found, target),
        )
        say(f"trial {number}: {describe(trial.params)}")
        try:
            with self.study.heartbeat(number):
                self.trainer.train_trial(attempt)
        except LeaseLostError as error:
            say(f"{error} It is left to it.")
        except TrainingError as error:
            say(f"trial {number} cannot be trained: {error}")
            self.study.fail(number, str(error))
        except BaseException as error:
            with contextlib.suppress(TrackingError):
                self.study.release(number, str(error) or type(error).__name__)
            raise

    def _finish(self, found: Trial, target: float | None) -> None:
        """Store a trial's result in the study; a trial that stopped at the target is complete, not pruned."""
        reached = _flops_to_target(found, target if target is not None else self._target_of(found))
        if reached is not None:
            found = found.model_copy(update={"pruned": False, "reached_flops": reached})
        self.study.finish(found.number, found, self._values(found))
        self.finished.append(found)
        end = "stopped" if found.pruned else "ended"
        say(f"trial {found.number} {end} after {found.flops:.3g} FLOPs, {self.search.metric} {found.score:.2%}")

    def _target_of(self, found: Trial) -> float | None:
        """Target that follows from the reference trial's own final score."""
        if self.search.goal is not Goal.COMPUTE or self._reference is None:
            return None
        return self.search.target_share * found.score

    def _values(self, found: Trial) -> list[float] | None:
        if found.pruned:
            return None
        reached = float("inf") if found.reached_flops is None else found.reached_flops
        values = {Goal.SCORE: [found.score], Goal.COMPUTE: [reached], Goal.PARETO: [found.flops, found.score]}
        return values[self.search.goal]


def _flops_to_target(found: Trial, target: float | None) -> float | None:
    """FLOPs until a score, interpolated as in A.4; None if it was not reached."""
    if target is None:
        return None
    cost = LearningCurve.of(f"trial {found.number}", found.scores_by_flops).reach(target).estimate
    return None if cost == float("inf") else cost
