"""`python -m benchmarks.demo_check --out .demo`: does the demo show that a model learns languages?

Judged are titles of pages that nothing was learned from, which look for their page among the English ones; topics that
were learned in English alone; and the endpoint's answers. The time is shown, and fails nothing: machines differ.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from lingraft.errors import LingraftError
from lingraft.reports.run.records import RunRecords, SampleAnswer
from lingraft.source_model import load_recipe
from lingraft.stages.results import SOURCE_TOKENIZER, SeedScores, TaskScores
from pipelines.demo import TIME_FILE
from pipelines.page_index import IN_TEN

SEARCH, TOPIC = "retrieval", "help-topic"
FEWEST_PAGES = 400
LOWEST_FIRST, LOWEST_IN_TEN = 0.40, 0.70
"""Shares of titles in each language that find their page."""
TIMES_AS_IS = 2.5
"""How much oftener a language finds its page than if the model reads it as it is; mean over languages."""
MOST_LOST = 0.02
"""How much worse than before learning a language may be found among ten: updates by mined pairs move it by less."""
POINTS_ABOVE_TRIVIAL = 0.20
"""Accuracy of topics in each language above the most frequent topic."""
MOST_SECONDS = 300
"""Aim on two idle cores; it is shown, and not checked."""


class Check(NamedTuple):
    """A value, the bound that it must keep, and on which side of it."""

    what: str
    value: float
    bound: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        """Whether the value is within its limits."""
        return self.value >= self.bound if self.at_least else self.value < self.bound

    def __str__(self) -> str:
        sign, verdict = (">=" if self.at_least else "<"), ("ok" if self.holds else "FAILED")
        return f"{self.what:<62} {self.value:9.3f} {sign:>2} {self.bound:8.3f}  {verdict}"


def checks(records: RunRecords, targets: Sequence[str]) -> Iterator[Check]:
    """Yield all checks of a report's scores.

    Raises:
        LingraftError: a language that is wanted has no scores.
    """
    scores = {language: _scores(records, language, SEARCH) for language in targets}
    for language, found in scores.items():
        yield Check(f"{language}: pages", found.examples, FEWEST_PAGES)
        yield Check(f"{language}: first", found.score.mean, LOWEST_FIRST)
        yield Check(f"{language}: among ten", found.others[IN_TEN].mean, LOWEST_IN_TEN)
    learned = mean(found.score.mean for found in scores.values())
    as_is = mean(found.baselines[SOURCE_TOKENIZER].mean for found in scores.values())
    yield Check("mean first, beside the language as the model reads it", learned, TIMES_AS_IS * as_is)
    in_ten, before = (
        mean(others[IN_TEN].mean for others in each) for each in zip(*map(_others, scores.values()), strict=True)
    )
    yield Check("mean among ten, beside that before learning", in_ten, before - MOST_LOST)
    for language in targets:
        topic = _scores(records, language, TOPIC)
        yield Check(f"{language}: topics", topic.score.mean, topic.baseline + POINTS_ABOVE_TRIVIAL)


def _others(scores: TaskScores) -> tuple[dict[str, SeedScores], dict[str, SeedScores]]:
    """Further metrics after learning, and before."""
    return scores.others, scores.initial_others


def _scores(records: RunRecords, language: str, task: str) -> TaskScores:
    for result in records.languages:
        if result.language == language and task in result.task_scores:
            return result.task_scores[task]
    raise LingraftError(f"the report has no scores on {task!r} for {language!r}. Run `make demo` first.")


def answer_checks(answers: Sequence[SampleAnswer], source: str, languages: Sequence[str]) -> Iterator[Check]:
    """Check that what a question finds first in the source language is among the answers, or labels, that it finds."""
    found = {(each.task, each.language): [what for what, _ in each.found] for each in answers}
    for task in (SEARCH, TOPIC):
        [right, *_] = found.get((task, source)) or [""]
        for language in languages:
            said = found.get((task, language), [])
            yield Check(f"{language}: {task} finds {right!r:.40}", float(right in said), 1.0)


def time_line(out: Path, target: str = "demo") -> str:
    """Return how long the last whole run took, beside the aim."""
    file = out / TIME_FILE
    if not file.is_file():
        return f"time of `make {target}` (not a check): unknown, there is no {file}"
    elapsed_s = json.loads(file.read_text(encoding="utf-8"))["elapsed_s"]
    return f"time of `make {target}` (not a check): {elapsed_s:.0f} s; aim on two idle cores: {MOST_SECONDS} s"


def main() -> None:
    """Print every check, and fail if one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".demo"), help="folder of the demo's results")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/demo.toml"), help="the demo's recipe")
    arguments = parser.parse_args()
    try:
        recipe, records = load_recipe(arguments.recipe), RunRecords.load(arguments.out / "report")
        found = [*checks(records, recipe.targets)]
        found += answer_checks(records.answers, recipe.source.language, recipe.targets)
    except LingraftError as error:
        sys.exit(f"error: {error}")
    print(*found, time_line(arguments.out), sep="\n")
    if failed := sum(not check.holds for check in found):
        sys.exit(f"{failed} of {len(found)} checks failed")


if __name__ == "__main__":
    main()
