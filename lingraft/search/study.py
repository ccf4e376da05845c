"""The study of a search, in a storage that workers share: each runs trials until all have ended."""

import contextlib
import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from lingraft.artifacts.addresses import sqlite_address, without_password
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import RESULTS_VARIABLE
from lingraft.artifacts.files import make_folder, require_new
from lingraft.artifacts.remote import uri_of
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.errors import InUseError, TrackingError, TrainingError
from lingraft.retry import poll, retry
from lingraft.search import outcome
from lingraft.search.trial import RECORD, Inputs, Trainer
from lingraft.stages.results import Trial
from lingraft.training.schedule import MetricsCallback, ignore_metrics

HEARTBEAT_S, LOST_AFTER_S = 30, 120
"""Seconds between two signs of life of a trial, and without one until another worker takes the trial."""
_POLL_S = 5.0
_LOCKED_S = 60.0
"""Seconds to wait for a locked SQLite file."""
_TABLES_S = 30.0
"""Seconds to wait for another process that makes the tables."""
_RACE = "already exists", "UNIQUE constraint failed", "duplicate key"
"""Messages of databases to the second of two processes that make the tables."""
_GRACE_SHARE = 0.3
"""Share of the budget before which no trial is stopped: many curves begin with a plateau (decision 13)."""


class StorageError(TrackingError):
    """The storage of a search cannot be used, perhaps only for a while."""

    heals = True


def search(
    recipe: Recipe,
    inputs: Inputs,
    storage: str | None,
    out: Path,
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
        storage: URL of a database; a search that was interrupted goes on from there. None keeps it in memory.
        out: folder of the result.
        state: folder of checkpoints, unless `LINGRAFT_RESULTS` names one; `<out>.training` if absent.
        watch: called with every point of each trial.
    """
    require_new(out)
    place = state or out.with_name(f"{out.name}.training")
    trainer = Trainer(recipe, inputs, place, watch)
    with _opened(trainer, storage) as study:
        _run_trials(study, trainer, 0, 1)
        made = outcome.write_result(study, trainer, out)
    with contextlib.suppress(OSError):  # it stays where it is not empty
        place.rmdir()
    return made


def work(
    recipe: Recipe, inputs: Inputs, storage: str | None, worker: int, watch: MetricsCallback = ignore_metrics
) -> list[Trial]:
    """Take part in a search as worker number `worker`, from 1, until all its trials have ended; return them."""
    if storage is None:
        raise TrackingError(
            "workers of a search share its trials in a storage, but none is given. Set LINGRAFT_SEARCH_STORAGE to a "
            "PostgreSQL URL, or LINGRAFT_RESULTS to a folder of all workers."
        )
    with tempfile.TemporaryDirectory(prefix="lingraft-") as state:
        trainer = Trainer(recipe, inputs, Path(state), watch)
        with _opened(trainer, storage) as study:
            _run_trials(study, trainer, worker - 1, trainer.search.workers)
            return outcome.records(study)


def shared_storage(given: str | None) -> str | None:
    """Return the storage that workers of a pipeline share: the given one, or a SQLite file in their results folder."""
    where = os.environ.get(RESULTS_VARIABLE)
    if given or where is None or uri_of(where):
        return given
    make_folder(Path(where))
    return sqlite_address(Path(where).resolve() / "searches.db")


@contextlib.contextmanager
def _opened(trainer: Trainer, address: str | None) -> Iterator[optuna.Study]:
    """Open the study of everything that decides its trials, or create it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # failed trials are told of below
    recipe, settings = trainer.recipe, trainer.search
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = _storage(address)
            study = optuna.create_study(
                storage=storage,
                study_name=f"{recipe.name}-{settings.language}-{trainer.fingerprint()[:12]}",
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=1, n_warmup_steps=math.ceil(_GRACE_SHARE * settings.looks)
                ),
            )
            try:
                yield study
            finally:
                if isinstance(storage, RDBStorage):
                    storage.remove_session()
                    storage.engine.dispose()
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise StorageError(
            f"the Optuna storage {without_password(address or 'in memory')} cannot be used: {reason}. Give the URL of "
            "a database that can be written, such as sqlite:///optuna.db, and see that its folder or server is there. "
            "The same again goes on from the checkpoints."
        ) from error


def _storage(address: str | None) -> BaseStorage:
    if address is None:
        return InMemoryStorage()
    is_sqlite = address.startswith("sqlite")
    found = retry(
        lambda: RDBStorage(
            address,
            engine_kwargs={"connect_args": {"timeout": _LOCKED_S}} if is_sqlite else {"pool_pre_ping": True},
            heartbeat_interval=HEARTBEAT_S,
            grace_period=LOST_AFTER_S,
            heartbeat_stale_trial_callback=_try_again,
        ),
        is_transient=lambda error: any(words in f"{error} {error.__cause__}" for words in _RACE),
        within_s=_TABLES_S,
        before_pause=lambda *_: say("another process makes the tables of the Optuna storage; it is tried again"),
    )
    if is_sqlite:
        # Optuna reads a trial's state and then writes it. SQLite locks the file only when something is written, so that
        # two workers could get the same trial.
        event.listen(found.engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(found.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        found.engine.dispose()
    return found


def _try_again(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    """Queue a trial that has not ended for whoever comes first; it keeps its scores."""
    say(f"trial {trial.number}, depth {trial.params['depth']}, has lost its worker, and goes on with the next")
    RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)(study, trial)


def _run_trials(study: optuna.Study, trainer: Trainer, worker: int, workers: int) -> None:
    """Run trials, and wait for those of other workers, until all have ended; this worker queues its share of them."""
    own = trainer.recipe.adaptation.depth
    depths = sorted(trainer.recipe.searched_depths, key=lambda depth: (depth != own, depth))
    for depth in depths[worker::workers]:
        study.enqueue_trial({"depth": depth}, skip_if_exists=True)
    for _ in poll(_POLL_S):
        optuna.storages.fail_stale_trials(study)
        while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.optimize(lambda trial: _objective(trial, trainer), n_trials=1, catch=(TrainingError, InUseError))
        if not study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            return


def _objective(trial: optuna.Trial, trainer: Trainer) -> float:
    study, depth = trial.study, trial.suggest_categorical("depth", trainer.recipe.searched_depths)
    ended = (each for each in study.get_trials(deepcopy=False) if RECORD in each.user_attrs)
    same = (each for each in ended if each.params["depth"] == depth)
    if (known := next(same, None)) is not None:  # its worker was lost before it could end it, or it is drawn again
        found = Trial(**known.user_attrs[RECORD])
    else:
        say(f"trial {trial.number}: depth {depth}")
        try:
            found = trainer.train(trial, depth)
        except TrainingError as error:
            say(f"trial {trial.number} cannot be trained: {error}")
            trial.set_user_attr(outcome.REASON, str(error))
            raise
        except InUseError as error:
            say(f"trial {trial.number} is left out: {error}")
            raise
        except BaseException as error:
            with contextlib.suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
                _try_again(study, study.trials[trial.number])
                if not isinstance(error, Exception | KeyboardInterrupt):  # which Optuna does not end a trial for
                    study.tell(trial.number, state=TrialState.FAIL)
            raise
        say(
            f"trial {trial.number} {'stopped' if found.pruned else 'ended'} after {found.flops:.3g} FLOPs, "
            f"{trainer.search.metric} {found.score:.2%}"
        )
    if found.pruned:
        raise optuna.TrialPruned
    return found.score
