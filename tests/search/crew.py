"""Workers as real processes on one storage, and a look at their trials."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from lingraft.config import Recipe
from lingraft.results import SearchResult
from lingraft.search import Inputs
from lingraft.search.board import Board
from lingraft.search.space import choices_of
from lingraft.search.storage import opened
from tests.workshop import Workshop

LIMIT_S = 600
_WORK = """
import sys
from pathlib import Path
from lingraft.cli import run_app
from lingraft.config import Recipe
from lingraft.search import Inputs, search
recipe, primary, blocks, tokenizer, storage, out, state = sys.argv[1:]
print("ready", flush=True)
sys.stdin.read()
run_app(lambda: search(Recipe.parse(Path(recipe).read_text()), Inputs(Path(primary), Path(blocks), Path(tokenizer)),
                       storage, Path(out), state=Path(state)))
"""


def inputs_of(shop: Workshop) -> Inputs:
    """What a search of German's depth reads."""
    return Inputs(shop.primary, shop.blocks["de"], shop.tokenizers["de"])


class Workers:
    """Processes of one search."""

    def __init__(self, shop: Workshop, recipe: Recipe, storage: str, folder: Path) -> None:
        (folder / "recipe.json").write_text(recipe.to_json(), encoding="utf-8")
        inputs = inputs_of(shop)
        self.given = [folder / "recipe.json", inputs.primary, inputs.blocks, inputs.tokenizer, storage]
        self.recipe, self.storage, self.folder = recipe, storage, folder

    @contextlib.contextmanager
    def one(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that begins now, and is killed in the end if it still works."""
        with self.together(name) as (worker,):
            yield worker

    @contextlib.contextmanager
    def together(self, *names: str) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Workers that begin at the same moment, however long each took to get ready."""
        _studies(self.storage)  # makes its tables, so that no worker waits for another that does
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(self._ready(name)) for name in names]
            for worker in workers:
                assert cast(BinaryIO, worker.stdout).readline() == b"ready\n"
            for worker in workers:
                cast(BinaryIO, worker.stdin).close()
            yield workers

    @contextlib.contextmanager
    def _ready(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        arguments = [*map(str, self.given), str(self.folder / name), str(self.folder / "state")]
        command, pipe = [sys.executable, "-c", _WORK, *arguments], subprocess.PIPE
        with (self.folder / f"{name}.log").open("wb") as log:
            worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log)
            with worker:
                try:
                    yield worker
                finally:
                    worker.kill()

    @contextlib.contextmanager
    def board(self) -> Iterator[Board]:
        """A look at the trials."""
        settings = self.recipe.require_search()
        (name,) = _studies(self.storage)
        opened = Board.open(name, self.storage, settings.goal, choices_of(self.recipe), settings.lost_after_s)
        with contextlib.closing(opened) as board:
            yield board

    def wait_for_look(self, look: int, trials: int = 1) -> None:
        """Until so many trials have been looked at so often, while their workers are at them."""
        moments = self._moments()
        while not _studies(self.storage):
            next(moments)
        with self.board() as board:
            while sum(look in trial.intermediate_values for trial in board.running()) < trials:
                next(moments)
        time.sleep(0.1)  # by now the lock of a journal is let go, which would be broken only after 30 s

    def log(self, name: str) -> str:
        """What a worker has told so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def wait_for_word(self, name: str, word: str) -> None:
        """Until a worker has told it."""
        moments = self._moments()
        while word not in self.log(name):
            next(moments)

    def _moments(self) -> Iterator[None]:
        """One after another for as long as anything may take; then it fails with what the workers have told."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            time.sleep(0.05)
            yield
        told = [f"{path.stem}: {self.log(path.stem)}" for path in self.folder.glob("*.log")]
        raise AssertionError(f"not in {LIMIT_S} s. " + "\n".join(told))


def _studies(address: str) -> list[str]:
    storage, close = opened(address)
    try:
        return [study.study_name for study in storage.get_all_studies()]
    finally:
        close()


def without_times(found: SearchResult) -> list[dict[str, object]]:
    """All that is the same whenever and by whomever a search is done."""
    return [trial.model_dump(exclude={"elapsed_s", "number"}) for trial in found.trials]
