"""Workers as real processes on one storage, and a look at their trials."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from lingraft.cli import run_app
from lingraft.config.recipe import Recipe
from lingraft.search import Inputs, search, study
from lingraft.stages.results import SearchResult, load_search
from tests.fixtures import once
from tests.fixtures.forked import Child, at_once, moments, start
from tests.workshop import Workshop


def work(recipe: str, inputs: Inputs, storage: str, out: Path, state: Path) -> None:
    """Search as `lingraft search-depth` does; a worker is lost after seconds, and every trial runs to its end."""
    study.HEARTBEAT_S, study.LOST_AFTER_S, study._GRACE_SHARE = 1, 4, 0.99
    run_app(lambda: search(Recipe.parse(recipe), inputs, storage, out, state=state))


def inputs_of(shop: Workshop) -> Inputs:
    """What a search of German's depth reads."""
    return Inputs(shop.primary, shop.blocks["de"], shop.tokenizers["de"])


def found_by_one(shop: Workshop, recipe: Recipe) -> SearchResult:
    """Search alone, once a run, without anything that disturbs it."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(study, "_GRACE_SHARE", 0.99)
            search(recipe, inputs_of(shop), None, folder / "search")

    return load_search(once.folder("undisturbed", make, recipe.to_json()) / "search")


class Workers:
    """Processes of one search."""

    def __init__(self, shop: Workshop, recipe: Recipe, storage: str, folder: Path) -> None:
        self.inputs, self.recipe, self.storage, self.folder = inputs_of(shop), recipe, storage, folder

    @contextlib.contextmanager
    def together(self, *names: str) -> Iterator[list[Child]]:
        """Workers that begin at the same moment."""
        with contextlib.ExitStack() as stack:
            with at_once(self.folder) as gate:
                workers = [stack.enter_context(self._waiting(name, gate)) for name in names]
            yield workers

    def _waiting(self, name: str, gate: Path) -> Child:
        given = self.recipe.to_json(), self.inputs, self.storage, self.folder / name, self.folder / "state"
        return start(work, *given, log=self.folder / f"{name}.log", gate=gate)

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """The trials so far."""
        storage = optuna.storages.RDBStorage(self.storage)
        try:
            studies = storage.get_all_studies()
            return storage.get_all_trials(studies[0]._study_id, states=states or None) if studies else []
        finally:
            storage.remove_session()
            storage.engine.dispose()

    def wait_for_look(self, look: int, trials: int = 1) -> None:
        """Until so many trials have been looked at so often, while their workers are at them."""
        told = (f"{path.stem}: {self.log(path.stem)}" for path in self.folder.glob("*.log"))
        for _ in moments(0.05, lambda: "\n".join(told)):
            running = self.trials(TrialState.RUNNING) if any(self.folder.glob("*.log")) else []
            if sum(look in trial.intermediate_values for trial in running) >= trials:
                return

    def log(self, name: str) -> str:
        """What a worker has told so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")


def without_times(found: SearchResult) -> list[dict[str, object]]:
    """All that is the same whenever and by whomever a search is done."""
    return [trial.model_dump(exclude={"elapsed_s", "number"}) for trial in found.trials]
