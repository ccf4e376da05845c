"""An index of the source's pages, made by the unchanged model, and asked in every language through the endpoint.

The pages are those that a retrieval task of the recipe is tested on by titles. The source's evaluation has embedded
them before any language is learned.

Legend: P pages, E width of a vector, K pages found.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import make_folder, sha256_of
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import primary_name
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import ParallelDocuments, Task
from lingraft.data.languages import name_and_tag
from lingraft.data.text import load_split
from lingraft.errors import LingraftError, MissingExtraError
from lingraft.jobs.data import TextJob
from lingraft.reports.run.records import RunRecords
from lingraft.stages.alignment_probe import digest_of
from lingraft.stages.results import SOURCE_TOKENIZER, SeedScores
from lingraft.stages.source_passages import PART, SourcePassages
from lingraft.tables import percent, text_table
from lingraft.tasks.ranking import DEPTH
from lingraft.tracking.evidence import EVALUATION, EVALUATION_RUN

SHOWN = 3
"""Pages that a question finds."""
IN_TEN = f"accuracy_at_{DEPTH}"
"""Metric that says how often a page is found among ten."""


@dataclass(frozen=True)
class PageIndex:
    """An index file, and the titles of its pages in the order of their vectors."""

    file: Path
    titles: Sequence[str]
    sha256: str

    @classmethod
    def of(cls, recipe: Recipe, task: Task, out: Path) -> "PageIndex":
        """Write the index of a task's pages, by the vectors of the registered source's evaluation.

        Raises:
            MissingExtraError: FAISS is not installed.
            LingraftError: the source is not registered, or was judged on other pages.
        """
        run = tracking.tags_of(primary_name(recipe))[EVALUATION_RUN]
        with tempfile.TemporaryDirectory() as place:
            fetched, text = Path(place) / EVALUATION, Path(place) / Kind.TEXT
            tracking.fetch_run_artifact(run, EVALUATION, Kind.EVALUATION, fetched)
            passages = SourcePassages.of_tensors(Artifact.load(fetched, Kind.EVALUATION).tensors(PART), task.name)
            read = TextJob(recipe=recipe, language=recipe.source.language, out=text).get_or_make()
            pages = load_split(read, "test")
        if [digest_of(page.name) for page in pages] != passages.keys:
            raise LingraftError(
                f"the source was judged on {len(passages.keys)} pages, which are not the {len(pages)} that its text "
                "has now. Run the source pipeline again."
            )
        [vectors_PE] = passages.vectors.values()
        make_folder(out)
        faiss, file = _faiss(), out / "pages.faiss"
        index = faiss.IndexFlatIP(vectors_PE.shape[1])
        index.add(np.ascontiguousarray(vectors_PE.float().numpy()))
        faiss.write_index(index, str(file))
        return cls(file, [page.text.partition("\n")[0] for page in pages], sha256_of(file))

    def nearest(self, vectors_1E: NDArray[np.float32]) -> tuple[tuple[str, float], ...]:
        """Return the titles of the pages that are nearest to a question, with their cosines."""
        cosines_1K, rows_1K = _faiss().read_index(str(self.file)).search(vectors_1E, SHOWN)
        return tuple((self.titles[row], float(cosine)) for row, cosine in zip(rows_1K[0], cosines_1K[0], strict=True))

    def require_unchanged(self) -> None:
        """Refuse an index whose file has changed since it was written.

        Raises:
            LingraftError: it has.
        """
        if (found := sha256_of(self.file)) != self.sha256:
            raise LingraftError(f"{self.file} has changed while it was asked: sha256 {found}, not {self.sha256}.")


def searches(recipe: Recipe) -> list[Task]:
    """Return the recipe's tasks that look for pages by their titles."""
    by_titles = ParallelDocuments(kind="documents", queries="titles")
    return [task for task in recipe.tasks if task.kind == "retrieval" and task.test == by_titles]


def search_table(records: RunRecords, task: str) -> list[str]:
    """Return lines of a table: how often titles find their page, first and among ten, by how they are embedded."""

    def cell(first: SeedScores | None, others: dict[str, SeedScores]) -> str:
        return f"{percent(first.mean)} / {percent(others[IN_TEN].mean)}" if first else ""

    rows = [["pages found by titles in", "titles", "as the model reads it", "before learning", "after learning"]]
    for one in records.source.tasks:
        if one.name == task:
            rows.append([f"{name_and_tag(records.source.language)}, ceiling", str(one.examples)])
            rows[-1] += [cell(one.score, one.others), "", ""]
    for result in records.languages:
        if (scores := result.task_scores.get(task)) is None:
            continue
        fed = cell(scores.baselines[SOURCE_TOKENIZER], scores.baseline_others[SOURCE_TOKENIZER])
        learned = [cell(scores.initial, scores.initial_others), cell(scores.score, scores.others)]
        rows.append([name_and_tag(result.language), str(scores.examples), fed, *learned])
    return [*text_table(rows), f"first / among {DEPTH}; titles and pages that nothing was learned from"]


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingExtraError("faiss-cpu", "dev") from error
    return faiss
