"""Test examples of tasks in one language, ready to judge bodies with any embeddings of the language."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from lingraft.artifacts.artifact import Artifact
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import ParallelDocuments, Task
from lingraft.console import say
from lingraft.data.text import read_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.loading import LoadedPrimary
from lingraft.stages.alignment_probe import FEWEST_PAIRS, digest_of, translated_paragraphs
from lingraft.stages.passage_search import PassageSearch
from lingraft.stages.results import WITHIN
from lingraft.stages.source_passages import SourcePassages
from lingraft.tasks.examples import load_examples
from lingraft.tasks.finetuned import TaskModel
from lingraft.tasks.ranking import Answers
from lingraft.tasks.searches import SearchData, load_searches
from lingraft.tasks.task_kind import TaskEvaluation
from lingraft.training import precision


@dataclass(frozen=True, eq=False)
class TaskTest:
    """Test examples of a task in one language."""

    seeds: Sequence[TaskModel]
    examples: int
    truncated: int
    """Number of examples of which only a part is seen."""
    judge: Callable[[TaskModel], TaskEvaluation]
    """Judges one of `seeds` with the embeddings that it has."""
    truncated_passages: int = 0
    """Number of passages that queries are looked for among of which only a part is seen."""
    baselines: Callable[[], Mapping[str, Mapping[int, TaskEvaluation]]] = dict
    """Evaluations, computed once, of what needs no embeddings of the language, by name and seed; bodies may then have
    the source's."""


@dataclass(frozen=True, eq=False)
class TaskInputs:
    """Everything that a task's test in one language is made of."""

    task: Task
    seeds: Sequence[TaskModel]
    """Finetuned bodies, one a seed."""
    text: Artifact | None
    """Text of the language."""
    tokenizer: Tokenizer
    """Tokenizer of the language."""
    source: LoadedPrimary
    """Primary with its own vocabulary."""
    embedded: SourcePassages | None = None
    """The source's passages, where they are embedded already."""

    def passage_search(
        self, queries: Sequence[str], passages: Sequence[str] | SourcePassages, answers: Answers
    ) -> PassageSearch:
        """Search among passages by queries in the language."""
        return PassageSearch.of(
            seeds=self.seeds,
            source=self.source,
            tokenizer=self.tokenizer,
            queries=queries,
            passages=passages,
            answers=answers,
        )


def task_tests(
    recipe: Recipe,
    tasks: Mapping[str, Sequence[TaskModel]],
    text: Artifact | None,
    tokenizer: Tokenizer,
    source: LoadedPrimary,
    embedded: Mapping[str, SourcePassages] | None = None,
) -> list[TaskTest]:
    """Load the test examples of every task that is judged in the tokenizer's language.

    Bodies may then have the source's embeddings.

    Args:
        recipe: recipe with the tasks.
        tasks: finetuned bodies by the name of the task, each with its seeds.
        text: text of the language.
        tokenizer: tokenizer of the language.
        source: primary with its own vocabulary.
        embedded: passages that are embedded already, by task.

    Raises:
        RecipeError: the recipe does not have one of the tasks.
        TextError: test examples are missing or damaged, or have labels that the task does not know.
    """
    wanted = {name: recipe.task(name) for name in tasks}
    tests = [
        task_test(
            TaskInputs(
                task=wanted[name],
                seeds=seeds,
                text=text,
                tokenizer=tokenizer,
                source=source,
                embedded=(embedded or {}).get(name),
            )
        )
        for name, seeds in tasks.items()
        if recipe.judges(wanted[name], tokenizer.language)
    ]
    return [test for test in tests if test]


def task_test(inputs: TaskInputs) -> TaskTest | None:
    """Load a task's test examples; None where too few paragraphs are parallel to tell anything.

    Raises:
        TextError: test examples are missing or damaged, or have labels that the task does not know.
    """
    if inputs.task.kind == "retrieval":
        return _test_of_retrieval(inputs)
    first, language = inputs.seeds[0], inputs.tokenizer.language
    examples = load_examples(inputs.task, "test", language, inputs.text)
    data = first.kind.prepare(examples, first.labels, inputs.tokenizer, first.shape)

    def judge(model: TaskModel) -> TaskEvaluation:
        return model.kind.judge(model.net.to(precision.device()), data, language)

    return TaskTest(inputs.seeds, len(examples), data.truncated, judge)


def _test_of_retrieval(inputs: TaskInputs) -> TaskTest | None:
    if isinstance(inputs.task.test, ParallelDocuments):
        search = _search_of_documents(inputs)
        searches = {"": search} if search else {}
    else:
        found = load_searches(inputs.task, inputs.tokenizer.language, inputs.source.tokenizer.language)
        searches = dict(zip(("", f"{WITHIN}_"), [_open_search(inputs, search) for search in found], strict=False))
    if not searches:
        return None
    official = searches[""]

    def judge(model: TaskModel) -> TaskEvaluation:
        judged = {begin: search.judge(model) for begin, search in searches.items()}
        first = judged.pop("")
        others = dict(first.others)
        for begin, one in judged.items():
            others |= {f"{begin}{name}": score for name, score in {model.kind.metric: one.score, **one.others}.items()}
        return replace(first, others=others)

    @cache
    def baselines() -> Mapping[str, Mapping[int, TaskEvaluation]]:
        return {f"{begin}{name}": each for begin, one in searches.items() for name, each in one.baselines().items()}

    return TaskTest(
        seeds=inputs.seeds,
        examples=len(official.answers),
        truncated=official.truncated,
        judge=judge,
        truncated_passages=official.truncated_passages,
        baselines=baselines,
    )


def _open_search(inputs: TaskInputs, search: SearchData) -> PassageSearch:
    passages: Sequence[str] | SourcePassages = search.passages
    if search.in_source:
        known = inputs.embedded
        if known is None or known.keys != [*map(digest_of, search.passages)]:
            known = SourcePassages.embedded(inputs.seeds, inputs.source, search.passages)
        passages = known
    return inputs.passage_search(search.queries, passages, Answers.of(search.answers))


def _search_of_documents(inputs: TaskInputs) -> PassageSearch | None:
    """Look for each paragraph, or title, of the test split among the source's paragraphs or documents."""
    task, language, embedded = inputs.task, inputs.tokenizer.language, inputs.embedded
    if inputs.text is None or embedded is None:
        say(
            f"task {task.name!r} is not judged in {language!r}: its paragraphs are looked for among those that the "
            "evaluation of the source keeps, and none was given that judged this task"
        )
        return None
    assert isinstance(task.test, ParallelDocuments)
    if task.test.queries == "titles":
        rows, queries = _titles(embedded, inputs.text)
    else:
        rows, queries, _ = translated_paragraphs(embedded.keys, embedded.digests, "test", inputs.tokenizer, inputs.text)
    if len(rows) < FEWEST_PAIRS:
        say(
            f"task {task.name!r} is not judged in {language!r}: {len(rows)} {task.test.queries} of its test split are "
            f"parallel to the source's, fewer than {FEWEST_PAIRS}"
        )
        return None
    return inputs.passage_search(queries, embedded, Answers.of([{row: 1.0} for row in rows]))


def _titles(embedded: SourcePassages, text: Artifact) -> tuple[list[int], list[str]]:
    """First lines of documents that the source has, too, and the rows of these."""
    row_of = {key: row for row, key in enumerate(embedded.keys)}
    named = [(digest_of(each.name), each.text.partition("\n")[0]) for each in read_split(text, "test")]
    found = [(row_of[key], title) for key, title in named if key in row_of and title]
    return [row for row, _ in found], [title for _, title in found]
