"""`python -m benchmarks.scratch_check --out .demo-scratch`: does demo-scratch show what mini-model adaptation promises?

Judged are zero-shot scores at the recipe's fixed depth, on test pages that no training saw, and the endpoint's answers.
The time is shown, and fails nothing: machines differ. By `make demo-compare` the mini-model is also held against
standard adaptation over all layers.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.demo_check import Check, time_line
from lingraft.config.recipe import Recipe
from lingraft.errors import LingraftError
from lingraft.reports.run.records import RunRecords, SampleAnswer
from lingraft.stages.results import LanguageResult, TaskScores

FEWEST_DOCUMENTS, SEEDS = 400, 2
LOWEST_ZERO_SHOT, LOWEST_MEAN_ZERO_SHOT = 0.57, 0.60
"""Accuracy of each language, and its mean over languages; the most frequent class has about 0.34."""
POINTS_BELOW_STANDARD = 0.02
"""Mean over languages. Seeds of adaptation differ by two to four points a language (decision 5)."""
RIGHT_ANSWER = "Calc (spreadsheets) [scalc]"
"""Label of the recipe's question, which is about spreadsheets in every language."""
TIMES_INITIAL_MASKED, SHARE_OF_STANDARD_MASKED, SHARE_OF_STANDARD_FLOPS = 1.3, 0.88, 0.70
"""Two of four layers save a third: the head over the vocabulary costs the same in both."""


def checks(
    rows: Sequence[LanguageResult], targets: Sequence[str], depth: int, task: str, compared: bool = True
) -> Iterator[Check]:
    """All checks of the rows of a report, at one depth and on one task.

    Args:
        rows: rows of the report.
        targets: languages that must be among them.
        depth: depth at which the mini-model is judged.
        task: task on which it is judged.
        compared: whether standard adaptation must be among the rows, and be compared with.

    Raises:
        LingraftError: a row is missing, or has no scores on the task.
    """
    mini = [_row(rows, language, depth) for language in targets]
    for row in mini:
        yield from _alone(row, task)
    yield Check("mean zero-shot accuracy", _topic(mini, task), LOWEST_MEAN_ZERO_SHOT)
    if compared:
        standard = [_row(rows, language, row.layers) for language, row in zip(targets, mini, strict=True)]
        yield from _beside_standard(mini, standard, task)


def is_compared(rows: Sequence[LanguageResult], targets: Sequence[str]) -> bool:
    """Whether standard adaptation is there for all target languages; the depth search may adapt one over all layers."""
    return {row.language for row in rows if row.depth == row.layers} >= set(targets)


def _row(rows: Sequence[LanguageResult], language: str, depth: int) -> LanguageResult:
    for row in rows:
        if (row.language, row.depth) == (language, depth):
            return row
    raise LingraftError(f"the report has no {language!r} over {depth} layers. Run `make demo-compare` first.")


def _scores(row: LanguageResult, task: str) -> TaskScores:
    if task not in row.task_scores:
        raise LingraftError(
            f"the report has no scores on {task!r} for {row.language!r}. Give the recipe that the report was made with."
        )
    return row.task_scores[task]


def _alone(row: LanguageResult, task: str) -> Iterator[Check]:
    scores, name = _scores(row, task), f"{row.language} over {row.depth} layers:"
    yield Check(f"{name} test pages", scores.examples, FEWEST_DOCUMENTS)
    yield Check(f"{name} finetuning seeds", len(scores.score.by_seed), SEEDS)
    yield Check(f"{name} zero-shot accuracy", scores.score.mean, LOWEST_ZERO_SHOT)
    bound = TIMES_INITIAL_MASKED * row.masked.primary_initial
    yield Check(f"{name} masked accuracy of the primary", row.masked.primary, bound)


def _topic(rows: list[LanguageResult], task: str) -> float:
    return mean(_scores(row, task).score.mean for row in rows)


def _beside_standard(mini: list[LanguageResult], standard: list[LanguageResult], task: str) -> Iterator[Check]:
    topic, reference = _topic(mini, task), _topic(standard, task)
    yield Check("mean zero-shot accuracy, beside standard adaptation", topic, reference - POINTS_BELOW_STANDARD)
    masked, reference = (mean(row.masked.primary for row in rows) for rows in (mini, standard))
    yield Check("mean masked accuracy, beside standard", masked, SHARE_OF_STANDARD_MASKED * reference)
    flops, reference = (mean(row.cost.flops for row in rows) for rows in (mini, standard))
    yield Check("mean FLOPs, as a share of standard", flops / reference, SHARE_OF_STANDARD_FLOPS, at_least=False)
    seconds, reference = (mean(row.cost.elapsed_s for row in rows) for rows in (mini, standard))
    print(f"seconds of training, as a share of standard (not a check): {seconds / reference:.3f}")


def answer_checks(answers: Sequence[SampleAnswer], languages: Sequence[str], task: str) -> Iterator[Check]:
    """Check that the endpoint's first answer in each language is right; an answer that is missing is wrong."""
    found = {each.language: each.found[0] for each in answers if each.task == task and each.found}
    for language in languages:
        label, probability = found.get(language, ("no answer", 0.0))
        yield Check(f"{language}: answer is {label} ({probability:.0%})", float(label == RIGHT_ANSWER), 1.0)


def only_task(recipe: Recipe) -> str:
    """Name of the recipe's task.

    Raises:
        LingraftError: it has none, or several.
    """
    names = [task.name for task in recipe.tasks]
    if len(names) != 1:
        raise LingraftError(
            f"the checks are of one task, but recipe {recipe.name!r} has {names}. Give the demo's recipe."
        )
    return names[0]


def main() -> None:
    """Print every check, and fail if one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".demo-scratch"), help="folder of the demo's results")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/demo-scratch.toml"), help="the demo's recipe")
    arguments = parser.parse_args()
    try:
        recipe = Recipe.load(arguments.recipe)
        records, task = RunRecords.load(arguments.out / "report"), only_task(recipe)
        rows = records.languages
        compared = is_compared(rows, recipe.targets)
        found = list(checks(rows, recipe.targets, recipe.adaptation.depth, task, compared))
        found += answer_checks(records.answers, recipe.languages, task)
    except LingraftError as error:
        sys.exit(f"error: {error}")
    print(*found, time_line(arguments.out, "demo-scratch"), sep="\n")
    if failed := sum(not check.holds for check in found):
        sys.exit(f"{failed} of {len(found)} checks failed")


if __name__ == "__main__":
    main()
