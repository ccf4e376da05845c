"""Choice of what learns and judges a task by its kind; PyTorch, which takes seconds to import, comes with the kind."""

from typing import TYPE_CHECKING, assert_never

from lingraft.config.tasks import Retrieval, Task
from lingraft.tasks.squad_metric import Evaluation

if TYPE_CHECKING:
    from lingraft.tasks.task_kind import TaskKind


def kind_of(task: Task) -> "TaskKind":
    """Return how a task's examples are batched, learned and judged."""
    match task.kind:
        case "documents" | "texts" | "pairs":
            from lingraft.tasks.classification import Classification

            return Classification()
        case "questions":
            from lingraft.tasks.question_answering import QuestionAnswering

            return QuestionAnswering(Evaluation(task.evaluation))
        case "tags":
            from lingraft.tasks.tagging import Tagging

            return Tagging(task.judges_words)
        case "retrieval":
            from lingraft.tasks.retrieval import PassageRetrieval

            return PassageRetrieval(task.retrieval or Retrieval())
        case unknown:
            assert_never(unknown)
