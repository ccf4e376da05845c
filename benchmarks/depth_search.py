"""`python -m benchmarks.depth_search --data DIR --out DIR`: what a depth search saves, and whether it finds the depth.

On real text: a many-headed primary is pretrained; then, for every language and seed, every depth is run to its end (the
grid), and the search is run, with what it found for the languages before. Both train alike, from the same rows. Beside
them stands one standard adaptation a language. What is in `--out` is not run again, so it may stop at any time.
`--data` has <language>.txt.xz; see benchmarks/depth_search.toml for sizes.
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.depth_search_page import Case, Found, Ran, write
from benchmarks.samples import sample
from lingraft.artifacts import sync
from lingraft.artifacts.addresses import sqlite_address
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import write_text
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.text import Folder
from lingraft.console import say
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.jobs.job import Job
from lingraft.jobs.training import AdaptationJob, PretrainingJob
from lingraft.search import Inputs, search
from lingraft.search.trial import ClaimedTrial, Trainer
from lingraft.stages.results import Trial, load_search
from lingraft.training.schedule import ignore_metrics

RECIPE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Bench:
    """Folders of one run."""

    recipe: Recipe
    out: Path

    def prepare(self) -> None:
        """Text to blocks of all languages, and the primary."""
        for language in self.recipe.languages:
            for job in language_jobs(self.recipe, language, LanguageDirs.under(self.out, language)):
                _make(job)
        source = LanguageDirs.under(self.out, self.recipe.source.language)
        _make(PretrainingJob(recipe=self.recipe, blocks=source.blocks, tokenizer=source.tokenizer, out=self.primary))

    @property
    def primary(self) -> Path:
        """Folder of the primary."""
        return self.out / "primary"

    def of(self, language: str, seed: int) -> Recipe:
        """The recipe of one search."""
        adaptation = self.recipe.adaptation.model_copy(update={"seed": seed})
        wanted = self.recipe.require_search().model_copy(update={"language": language})
        return self.recipe.model_copy(update={"adaptation": adaptation, "search": wanted})

    def inputs(self, language: str) -> Inputs:
        """Return the inputs of a search."""
        lane = LanguageDirs.under(self.out, language)
        return Inputs(self.primary, lane.blocks, lane.tokenizer)

    def standard(self, language: str) -> Ran:
        """One standard adaptation, over all layers."""
        folders = LanguageDirs.under(self.out, language)
        made = _make(
            AdaptationJob(
                recipe=self.recipe,
                depth=self.recipe.encoder.layers,
                language=language,
                primary=self.primary,
                blocks=folders.blocks,
                tokenizer=folders.tokenizer,
                out=self.out / "standard" / language,
            )
        )
        return Ran(flops=made.manifest.cost.flops, training_s=made.manifest.cost.elapsed_s)

    def grid(self, language: str, seed: int) -> list[Trial]:
        """Every depth, run to its end."""
        recipe, folder = self.of(language, seed), self.out / "grid" / f"{language}-{seed}"
        places = {depth: folder / f"{depth}.json" for depth in recipe.searched_depths}
        if not all(place.exists() for place in places.values()):
            trainer = Trainer(recipe, self.inputs(language), folder / "state", ignore_metrics)
            for depth, place in places.items():
                if not place.exists():
                    say(f"grid, {language}, seed {seed}: depth {depth}")
                    trainer.train_trial(_to_its_end(depth, place))
        return [Trial.model_validate_json(place.read_text(encoding="utf-8")) for place in places.values()]

    def searched(self, language: str, seed: int, known: dict[str, int]) -> Found:
        """The search, with the seconds that it took from beginning to end, judging included."""
        out = self.out / "search" / f"{language}-{seed}"
        clock = out.with_name(f"{out.name}.seconds")
        if not out.exists():
            storage, started = sqlite_address((self.out / "trials.db").resolve()), time.monotonic()
            search(self.of(language, seed), self.inputs(language), storage, out, known)
            write_text(clock, f"{time.monotonic() - started:.1f}")
        seconds = float(clock.read_text()) if clock.exists() else None
        return Found(result=load_search(out), elapsed_s=seconds)

    def cases(self, seeds: list[int]) -> Iterator[Case]:
        """Each language with each seed; a search knows those of the languages before, with its own seed."""
        known: dict[int, dict[str, int]] = {seed: {} for seed in seeds}
        for language in self.recipe.targets:
            standard = self.standard(language)
            for seed in seeds:
                grid, found = self.grid(language, seed), self.searched(language, seed, dict(known[seed]))
                known[seed][language] = found.result.chosen
                yield Case(language=language, seed=seed, grid=grid, found=found, standard=standard)


def _to_its_end(depth: int, place: Path) -> ClaimedTrial:
    def finish(trial: Trial) -> None:
        write_text(place, trial.model_dump_json(indent=1) + "\n")

    return ClaimedTrial(
        number=depth,
        params={"depth": depth},
        scores={},
        report=lambda _look, _score: None,
        should_stop=lambda _scores, _last: False,
        finish=finish,
    )


def _make(job: Job) -> Artifact:
    say(job.title)
    with job.cached() as found:
        return found or job.make()


def main() -> None:
    """Run what is missing, and write records, plot and page after every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with <language>.txt.xz")
    parser.add_argument("--out", type=Path, required=True, help="folder of all that is made")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="sizes; its text is replaced by that of --data")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--megabytes", type=float, default=12.0, help="of text of a language, at most about")
    parser.add_argument("--page", type=Path, help="depth-search.json.xz, .md and .png go here; --out if absent")
    given = parser.parse_args()
    os.environ.pop(sync.RESULTS_VARIABLE, None)  # what was made for something else would cost nothing here
    recipe = Recipe.load(given.recipe)
    samples = given.out / "sample"
    for language in recipe.languages:
        sample(given.data / f"{language}.txt.xz", given.megabytes, samples / f"{language}.txt")
    text = Folder(kind="folder", path=str(samples.resolve()))
    bench = Bench(recipe.model_copy(update={"text": text}), given.out)
    bench.prepare()
    cost, cases = Artifact.load(bench.primary, Kind.PRIMARY).manifest.cost, []
    for case in bench.cases(given.seeds):
        cases.append(case)
        write(bench.recipe, Ran(flops=cost.flops, training_s=cost.elapsed_s), cases, given.page or given.out)
    print((given.page or given.out) / "depth-search.md")


if __name__ == "__main__":
    main()
