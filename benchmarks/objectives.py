"""`python -m benchmarks.objectives --out DIR`: what a new language should learn by, for a search of English passages.

Rows start aligned by sentence pairs. A language then learns, at equal FLOPs, by masked tokens over the bottom layers;
or by pairs, whose vectors approach the English ones, after the bottom layers or after all. The measure is that of
`benchmarks.page_search`: how often a page is found by its translation. Pairs are parallel paragraphs of training pages,
searches are over test pages.

Everything is made under `--out`, once: stopped at any moment, the same command goes on.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Self

from benchmarks.initialisation.resources import write_pairs
from benchmarks.page_search import SEED, TASK, search_task, write_examples
from benchmarks.pages import command_line, write_page
from benchmarks.quick import quick
from benchmarks.speed.machine import commit, described
from lingraft.comparison.runner import run_jobs
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.config.training import SentencePairs
from lingraft.data.text import load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import LingraftError
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.jobs.job import Job
from lingraft.jobs.training import AdaptationJob, FinetuningJob, InitialisationJob, PretrainingJob, VectorsJob
from lingraft.model.flops import step_flops
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.stages.passage_search import PassageSearch
from lingraft.stages.source_passages import SourcePassages
from lingraft.tables import markdown_table
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.ranking import Answers
from lingraft.tasks.searches import load_searches

RECIPE = Path(__file__).parents[1] / "recipes" / "demo-scratch.toml"
ALIGNED = "rows as aligned"
_MASKED = "masked tokens"
OBJECTIVES: dict[str, SentencePairs | None] = {
    _MASKED: None,
    "pairs, bottom layers": SentencePairs(),
    "pairs, all layers": SentencePairs(layers="all"),
}

_HIDDEN = {f"--{name}": name.upper() for name in ("data", "out", "page")}


@dataclass(frozen=True)
class Run:
    """One pretraining seed: its primary, its search, and languages."""

    recipe: Recipe
    """Recipe with that seed."""
    out: Path
    """Folder of all seeds."""

    @classmethod
    def of(cls, recipe: Recipe, seed: int, out: Path) -> Self:
        """Return the run of a seed of pretraining and adaptation."""
        sections = {"pretraining": recipe.pretraining, "adaptation": recipe.adaptation}
        changes = {name: section.model_copy(update={"seed": seed}) for name, section in sections.items()}
        return cls(recipe.model_copy(update=changes), out)

    @property
    def seed(self) -> int:
        """Seed of pretraining and adaptation."""
        return self.recipe.pretraining.seed

    @property
    def folder(self) -> Path:
        """Folder of this seed."""
        return self.out / f"seed-{self.seed}"

    def lane(self, language: str) -> LanguageDirs:
        """Return the folders of a language's text, tokenizer and blocks."""
        return LanguageDirs.under(self.out, language)

    def of_objective(self, objective: str, updates: int) -> Recipe:
        """Return the recipe under which a language learns by an objective, for the FLOPs of masked tokens."""
        masked = self.recipe.adaptation.model_copy(update={"steps": updates})
        paired = masked.model_copy(update={"pairs": OBJECTIVES[objective]})
        step, rows = self.recipe.steps_over(masked.depth)[Stage.ADAPT], self.recipe.tokenizer.vocabulary
        cost, own_cost = (step_flops(self.recipe, step, each, rows) for each in (masked, paired))
        steps = max(1, round(updates * cost / own_cost))
        changes = {"steps": steps, "warmup_steps": round(masked.warmup_steps * steps / updates)}
        return self.recipe.model_copy(update={"adaptation": paired.model_copy(update=changes)})

    def learned(self, language: str, objective: str, updates: int) -> Path:
        """Return the folder of a language's embeddings."""
        return self.folder / f"{language}-{objective.replace(', ', '-').replace(' ', '-')}-{updates}"

    def jobs(self, updates: Sequence[int]) -> Iterator[Job]:
        """Yield everything that is trained, in order."""
        recipe, source = self.recipe, self.lane(self.recipe.source.language)
        primary = self.folder / "primary"
        yield PretrainingJob(recipe=recipe, blocks=source.blocks, tokenizer=source.tokenizer, out=primary)
        yield FinetuningJob(recipe=recipe, task=TASK, seed=SEED, primary=primary, out=self.folder / "task")
        for language in recipe.targets:
            lane, initial = self.lane(language), self.folder / f"{language}-initial"
            inputs = {"primary": primary, "tokenizer": lane.tokenizer, "blocks": lane.blocks, "language": language}
            yield InitialisationJob(recipe=recipe, source_vectors=self.out / "vectors", out=initial, **inputs)
            for count in updates:
                for objective in OBJECTIVES:
                    wanted = self.of_objective(objective, count)
                    out = self.learned(language, objective, count)
                    yield AdaptationJob(
                        recipe=wanted, depth=wanted.adaptation.depth, initial=initial, out=out, **inputs
                    )

    def records(self, updates: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Search in every language with every embeddings, and yield what was found."""
        model, source = load_task(self.folder / "task"), load_primary(self.folder / "primary")
        passages: SourcePassages | None = None
        for language in self.recipe.targets:
            search = load_searches(self.recipe.task(TASK), language, self.recipe.source.language)[0]
            passages = passages or SourcePassages.embedded([model], source, search.passages)
            folders = {(ALIGNED, 0): self.folder / f"{language}-initial"}
            folders |= {(each, count): self.learned(language, each, count) for count in updates for each in OBJECTIVES}
            found = PassageSearch.of(
                seeds=[model],
                source=source,
                tokenizer=Tokenizer.load(self.lane(language).tokenizer, language),
                queries=search.queries,
                passages=passages,
                answers=Answers.of(search.answers),
            )
            for (objective, count), folder in folders.items():
                rows = load_embeddings(folder)
                model.swap_in(rows)
                judged, cost = found.judge(model), rows.manifest.cost if count else None
                yield {
                    "language": language,
                    "seed": self.seed,
                    "objective": objective,
                    "budget": count,
                    "updates": cost.steps if cost else 0,
                    "flops": cost.flops if cost else 0.0,
                    "elapsed_s": round(cost.elapsed_s, 1) if cost else 0.0,
                    "accuracy_at_1": judged.score,
                    **judged.others,
                }


def page(found: dict[str, Any]) -> str:
    """Write the page from the record."""
    records = found["records"]
    languages = list(dict.fromkeys(record["language"] for record in records))
    seeds = sorted({record["seed"] for record in records})
    head = ["budget", "learned by", "updates", "TFLOP", "s"]
    head += [f"{language}, first / MRR@10" for language in languages]
    rows = []
    for objective, budget in dict.fromkeys((record["objective"], record["budget"]) for record in records):
        its = [record for record in records if (record["objective"], record["budget"]) == (objective, budget)]
        cells = [f"{mean(one[key] for one in its) / unit:{form}}" for key, unit, form in _COST]
        for language in languages:
            ones = [one for one in its if one["language"] == language]
            first = ", ".join(f"{100 * one['accuracy_at_1']:.1f}" for one in ones)
            cells.append(f"{first} / {100 * mean(one['MRR_at_10'] for one in ones):.1f}")
        beside = _beside_masked(records, objective, budget)
        cells.append(f"{mean(beside):+.1f} ({min(beside):+.1f} to {max(beside):+.1f})" if beside else "–")
        rows.append([str(budget), objective, *cells])
    earlier = any(record["objective"].startswith("both") for record in records)
    weighed = "; `both`, which is no choice any more, weighs those by 0.1" if earlier else ""
    told = [
        "# What embedding models should learn a language by",
        f"`{found['command']}` on {found['device']}, commit {found['commit']}. Percent of pages that are found first "
        f"among {found['pages']} English ones by their translation, one number per pretraining seed ({seeds}), and the "
        "mean reciprocal rank. A budget is the FLOPs of so many updates of masked tokens, the same for all that learn; "
        "the last column has points of pages found first beside masked tokens, the mean and the range over languages "
        "and seeds.",
        markdown_table([*head, "beside masked tokens"], rows, left=2),
        f"Rows start aligned by the same sentence pairs. All learn at the recipe's rate, {found['learning_rate']:g}, "
        f"which was chosen for masked tokens{weighed}. Pairs are charged as "
        "sentences as long as a block, and for the source's vector at every update; they are shorter, and the vector "
        "is computed once, so that pairs take fewer seconds. Seconds are those of a core, without that vector's. Pairs "
        "aim at vectors of the primary as it was before the search was finetuned; of an imported embedding model the "
        "two are the same.",
    ]
    return "\n\n".join(told) + "\n"


def _beside_masked(records: Sequence[dict[str, Any]], objective: str, budget: int) -> list[float]:
    """Points of pages found first beside masked tokens of the same budget, language and seed."""

    def scores(name: str) -> dict[tuple[str, int], float]:
        its = (one for one in records if (one["objective"], one["budget"]) == (name, budget))
        return {(one["language"], one["seed"]): one["accuracy_at_1"] for one in its}

    own, masked = scores(objective), scores(_MASKED)
    return [] if objective == _MASKED else [100 * own[place] - 100 * masked[place] for place in own if place in masked]


_COST = (("updates", 1, ",.0f"), ("flops", 1e12, ".2f"), ("elapsed_s", 1, ".0f"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing, search, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of everything that is made")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="recipes/demo-scratch.toml if absent")
    parser.add_argument("--data", type=Path, help="folder of text in place of the recipe's")
    parser.add_argument("--languages", nargs="+", help="targets; the recipe's if absent")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of pretraining and adaptation")
    parser.add_argument(
        "--updates", nargs="+", type=int, help="of masked tokens, whose FLOPs all have; the recipe's if absent"
    )
    parser.add_argument("--quick", action="store_true", help="models of a few thousand parameters, to try the command")
    parser.add_argument("--page", type=Path, help="page, with its record beside it; OUT/objectives.md if absent")
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    recipe = _with_search(_recipe(given), out)
    runs, updates = [Run.of(recipe, seed, out) for seed in given.seeds], given.updates or [recipe.adaptation.steps]
    for _ in run_jobs([job for run in runs for job in run.jobs(updates)]):
        pass
    found = {
        "command": command_line("benchmarks.objectives", sys.argv[1:] if arguments is None else arguments, _HIDDEN),
        "device": described()["device"],
        "commit": commit(),
        "learning_rate": recipe.adaptation.learning_rate,
        "pages": len(load_searches(recipe.task(TASK), recipe.targets[0], recipe.source.language)[0].passages),
        "records": [record for run in runs for record in run.records(updates)],
    }
    place = (given.page or out / "objectives.md").with_suffix("")
    write_page(place, found, page(found))
    print(place.with_suffix(".md"))


def _recipe(given: argparse.Namespace) -> Recipe:
    """The recipe with what the command line changes."""
    raw = Recipe.load(given.recipe).model_dump(mode="json")
    raw |= {"targets": given.languages or raw["targets"], "search": None, "paper": None}
    raw["gate"] = {"metric": "alignment"}  # pairs alone learn no masked tokens, which the default weighs
    recipe = Recipe.parse(quick(raw) if given.quick else raw)
    return recipe.with_folder(given.data.resolve()) if given.data else recipe


def _with_search(recipe: Recipe, out: Path) -> Recipe:
    """The recipe with the search as its task and with sentence pairs, once text and static vectors are there."""
    lanes = {language: LanguageDirs.under(out, language) for language in recipe.languages}
    source, examples = lanes[recipe.source.language], out / "examples"
    made = [job for language, lane in lanes.items() for job in language_jobs(recipe, language, lane)]
    made.append(VectorsJob(recipe=recipe, blocks=source.blocks, tokenizer=source.tokenizer, out=out / "vectors"))
    for _ in run_jobs(made):
        pass
    if not examples.exists():
        write_examples(examples, {language: lane.text for language, lane in lanes.items()}, recipe.source.language)
    english = load_text(source.text, recipe.source.language)
    pairs = {language: out / "pairs" / f"{recipe.source.language}-{language}.tsv" for language in recipe.targets}
    for language, place in pairs.items():
        if not write_pairs(english, load_text(lanes[language].text, language), place):
            raise LingraftError(
                f"{language!r} has too few paragraphs that are parallel to {recipe.source.language!r}'s."
            )
    parallel = {language: str(place) for language, place in pairs.items()}
    alignment = recipe.alignment.model_copy(update={"parallel": parallel})
    return recipe.model_copy(update={"tasks": (search_task(examples, recipe.source.language),), "alignment": alignment})


if __name__ == "__main__":
    try:
        main()
    except LingraftError as error:
        sys.exit(f"error: {error}")
