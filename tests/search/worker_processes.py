"""Workers as real processes on one storage, and a look at their trials."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from lingraft.cli import run_app
from lingraft.config.recipe import Recipe
from lingraft.search import Inputs, search
from lingraft.search.shared_study import SharedStudy
from lingraft.search.space import search_space
from lingraft.search.storage import open_storage
from lingraft.stages.results import SearchResult, load_search
from tests.fixtures import once
from tests.fixtures.forked import Child, at_once, moments, start
from tests.workshop import Workshop


def work(recipe: str, inputs: Inputs, storage: str, out: Path, state: Path) -> None:
    """Search as `lingraft search-depth` does."""
    run_app(lambda: search(Recipe.parse(recipe), inputs, storage, out, state=state))


def inputs_of(shop: Workshop) -> Inputs:
    """What a search of German's depth reads."""
    return Inputs(shop.primary, shop.blocks["de"], shop.tokenizers["de"])


def found_by_one(shop: Workshop, recipe: Recipe) -> SearchResult:
    """Search alone, once a run, without anything that disturbs it."""

    def make(folder: Path) -> None:
        search(recipe, inputs_of(shop), None, folder / "search")

    return load_search(once.folder("undisturbed", make, recipe.to_json()) / "search")


class Workers:
    """Processes of one search."""

    def __init__(self, shop: Workshop, recipe: Recipe, storage: str, folder: Path) -> None:
        self.inputs, self.recipe, self.storage, self.folder = inputs_of(shop), recipe, storage, folder

    @contextlib.contextmanager
    def one(self, name: str) -> Iterator[Child]:
        """A worker that begins now, and is killed in the end if it still works."""
        with self.together(name) as (worker,):
            yield worker

    @contextlib.contextmanager
    def together(self, *names: str) -> Iterator[list[Child]]:
        """Workers that begin at the same moment."""
        _studies(self.storage)  # makes its tables, so that no worker waits for another that does
        with contextlib.ExitStack() as stack:
            with at_once(self.folder) as gate:
                workers = [stack.enter_context(self._waiting(name, gate)) for name in names]
            yield workers

    def _waiting(self, name: str, gate: Path) -> Child:
        given = self.recipe.to_json(), self.inputs, self.storage, self.folder / name, self.folder / "state"
        return start(work, *given, log=self.folder / f"{name}.log", gate=gate)

    @contextlib.contextmanager
    def board(self) -> Iterator[SharedStudy]:
        """A look at the trials."""
        settings = self.recipe.require_search()
        (name,) = _studies(self.storage)
        opened = SharedStudy.open(name, self.storage, settings.goal, search_space(self.recipe), settings.lost_after_s)
        with contextlib.closing(opened) as board:
            yield board

    def wait_for_look(self, look: int, trials: int = 1) -> None:
        """Until so many trials have been looked at so often, while their workers are at them."""
        pauses = self._moments()
        while not _studies(self.storage):
            next(pauses)
        with self.board() as board:
            while sum(look in trial.intermediate_values for trial in board.running()) < trials:
                next(pauses)
        time.sleep(0.1)  # by now the lock of a journal is let go, which would be broken only after 30 s

    @contextlib.contextmanager
    def held_at_look(self, worker: Child, look: int) -> Iterator[None]:
        """Hold a worker as soon as its trial has been looked at so often, however fast it is, and let it go on after.

        It is looked at only while it is held, so that it has not ended its trial meanwhile, however long a look takes.
        """
        pauses = self._moments(0.02)
        with contextlib.ExitStack() as opened:
            board: SharedStudy | None = None
            while board is None or not any(look in trial.intermediate_values for trial in board.running()):
                assert worker.runs, worker.said
                worker.send(signal.SIGCONT)
                next(pauses)
                worker.send(signal.SIGSTOP)
                if board is None and _studies(self.storage):
                    board = opened.enter_context(self.board())
        yield
        worker.send(signal.SIGCONT)

    def log(self, name: str) -> str:
        """What a worker has told so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def _moments(self, pause_s: float = 0.05) -> Iterator[None]:
        told = (f"{path.stem}: {self.log(path.stem)}" for path in self.folder.glob("*.log"))
        return moments(pause_s, lambda: "\n".join(told))


def _studies(address: str) -> list[str]:
    storage, close = open_storage(address)
    try:
        return [study.study_name for study in storage.get_all_studies()]
    finally:
        close()


def without_times(found: SearchResult) -> list[dict[str, object]]:
    """All that is the same whenever and by whomever a search is done."""
    return [trial.model_dump(exclude={"elapsed_s", "number"}) for trial in found.trials]
