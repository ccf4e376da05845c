"""Records that a report is made from: the source, and one result per language and mini-model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

import pydantic

from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.artifacts.manifest import Kind
from lingraft.data.languages import language_name
from lingraft.errors import ArtifactError
from lingraft.stages.results import LanguageResult, Result, SourceResult
from lingraft.tasks.class_scores import class_scores

RECORDS_FILE = "report.json"


def layers_of(result: LanguageResult) -> str:
    """Return the layers that embeddings were learned over, such as "4 of 12" or "2 of 12 + 2 fresh"."""
    fresh = f" + {result.fresh_layers} fresh" if result.fresh_layers and result.learned_over == result.depth else ""
    return f"{result.learned_over} of {result.layers}{fresh}"


class GateVerdict(Result):
    """Verdict of the gate on the embeddings of a language, as the registry keeps it."""

    model: str = pydantic.Field(description="Name of the registered model.")
    version: int
    promoted: bool = pydantic.Field(description="Whether the version became champion, which is what is served.")
    reason: str = pydantic.Field(description="The gate's checks that decided it, in sentences.")
    run: str | None = pydantic.Field(None, description="Id of the tracking run that registered the version.")


class SampleAnswer(Result):
    """One question to the served task, and what was answered."""

    task: str
    language: str
    texts: dict[str, str] = pydantic.Field(description="By the names of the endpoint's inputs.")
    found: tuple[tuple[str, float], ...] = pydantic.Field(description="Labels, passages or entities, with probability.")


class TrackedRun(Result):
    """Location of the tracking run that a report is about."""

    uri: str = pydantic.Field(description="Of the tracking store, without credentials.")
    experiment: str = pydantic.Field(description="Id of the experiment.")
    run: str = pydantic.Field(description="Id of the pipeline's run; the runs of its stages are below it.")

    @property
    def is_server(self) -> bool:
        """Whether the store is a server, with pages of its own."""
        return self.uri.startswith(("http://", "https://"))

    def link(self, run: str) -> str:
        """Return the address of a run's page; without a server, where `mlflow ui` has its pages by default."""
        pages = self.uri.rstrip("/") if self.is_server else "http://127.0.0.1:5000"
        # MLflow would open its pages for applications of language models.
        return f"{pages}/#/experiments/{self.experiment}/runs/{run}?workflowType=machine_learning"


class RunRecords(Result):
    """Everything that the report shows; the content of report.json."""

    source: SourceResult
    languages: tuple[LanguageResult, ...]
    failed: dict[str, str] = pydantic.Field({}, description="Why languages have no evaluation, by language.")
    verdicts: dict[str, GateVerdict] = pydantic.Field({}, description="The gate's, by language, where it was asked.")
    tracked: TrackedRun | None = pydantic.Field(None, description="The run, where it was tracked.")
    answers: tuple[SampleAnswer, ...] = pydantic.Field((), description="What the served tasks were asked.")

    @classmethod
    def of(
        cls,
        source: SourceResult,
        languages: Sequence[LanguageResult],
        failed: Mapping[str, str] = MappingProxyType({}),
        verdicts: Mapping[str, GateVerdict] = MappingProxyType({}),
        tracked: TrackedRun | None = None,
    ) -> Self:
        """Check that the records belong together; order them by language as given, then by layers.

        Embeddings that were evaluated twice give one row. The arguments are the fields of the same names.

        Raises:
            ArtifactError: no language, or two different embeddings for one language and mini-model.
            AlignmentError: a language belongs to another primary than the source.
        """
        if not languages:
            raise ArtifactError("a report needs the evaluation of at least one language; none was given.")
        distinct: dict[tuple[str, int, int], LanguageResult] = {}
        for row in languages:
            what = f"{row.language!r} over {layers_of(row)} layers"
            require_aligned(f"the evaluation of {what}", row.primary, source.primary)
            first = distinct.setdefault((row.language, row.depth, row.fresh_layers), row)
            if first.embeddings != row.embeddings:
                raise ArtifactError(
                    f"{what} has two evaluations, of embeddings {first.embeddings} and {row.embeddings}. "
                    "Give the report one of them."
                )
        order = list(dict.fromkeys(row.language for row in languages))
        rows = sorted(distinct.values(), key=lambda row: (order.index(row.language), row.depth, row.fresh_layers))
        return cls(source=source, languages=tuple(rows), failed=dict(failed), verdicts=dict(verdicts), tracked=tracked)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open the records of a report.

        Raises:
            ArtifactError: not a report, or damaged.
        """
        report = Artifact.load(folder, Kind.REPORT)
        return cls.model_validate_json((report.folder / RECORDS_FILE).read_text(encoding="utf-8"))

    @property
    def names(self) -> list[str]:
        """Tags of the adapted languages, each once."""
        return list(dict.fromkeys(row.language for row in self.languages))

    @property
    def tasks(self) -> list[str]:
        """Tasks that the source or a language was tested on, each once."""
        return list(dict.fromkeys(task.name for result in self._evaluations for task in result.tasks))

    @property
    def _evaluations(self) -> list[SourceResult | LanguageResult]:
        return [self.source, *self.languages]

    def warnings(self) -> list[str]:
        """Return sentences on classes that are never found, which accuracy hardly shows, and on what was not judged."""
        missed: dict[tuple[str, str], list[str]] = {}
        for result in self._evaluations:
            over = f" ({layers_of(result)})" if isinstance(result, LanguageResult) else ""
            for task in result.tasks:
                scores = zip(
                    task.labels, class_scores(task.confusion), strict=False
                )  # a tagger's labels have no matrix
                for label in (label for label, score in scores if score.never_found):
                    missed.setdefault((task.name, label), []).append(f"{language_name(result.language)}{over}")
        untested = {
            task: [language_name(row.language) for row in self.languages if task not in row.task_scores]
            for task in self.tasks
        }
        return [
            *(
                f"{task}: no test example of {label} is recognised in {', '.join(places)}."
                for (task, label), places in missed.items()
            ),
            *(
                f"{task} is not judged in {', '.join(dict.fromkeys(names))}: there are no test examples."
                for task, names in untested.items()
                if names
            ),
        ]
