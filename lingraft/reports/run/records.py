"""Records that a report is made from: the source, one row per language and mini-model, means over languages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

import pydantic

from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.config.recipe import Recipe
from lingraft.data.languages import name_and_tag
from lingraft.errors import ArtifactError
from lingraft.stages.results import LanguageResult, Result, SearchResult, SourceResult, TaskScores

RECORDS_FILE = "report.json"
_TRAINING_PAGES = "?workflowType=machine_learning"
"""Chooses MLflow's pages for training, where it would open those for applications of language models."""
_LOCAL_PAGES = "http://127.0.0.1:5000"


class AdaptedLayers(NamedTuple):
    """Layers that embeddings were learned over: bottom layers of the primary, and fresh ones on top (step 1b)."""

    depth: int
    fresh: int = 0
    shallower: tuple[int, ...] = ()
    """Depths before, of a progressive adaptation."""

    @classmethod
    def of_result(cls, result: LanguageResult) -> Self:
        """Return the layers under a language's embeddings."""
        return cls(result.depth, result.fresh_layers, result.shallower)

    def __str__(self) -> str:
        return f"{self.depths} + {self.fresh} fresh" if self.fresh else self.depths

    @property
    def depths(self) -> str:
        """All depths in words, such as "2, 4, then 8"."""
        return f"{', '.join(map(str, self.shallower))}, then {self.depth}" if self.shallower else str(self.depth)

    def of(self, layers: int) -> str:
        """Return the layers beside the primary's number of layers, such as "4 of 12 + 2 fresh"."""
        return f"{self.depths} of {layers}" + (f" + {self.fresh} fresh" if self.fresh else "")


@dataclass(frozen=True)
class ResultRow:
    """A line of a table: one adapted language, or a mean over several with equal layers."""

    language: str
    """Name and tag, or what the mean is over."""
    over: AdaptedLayers
    mark: str
    """"standard" for adaptation over all layers, "searched" for the depth that the search chose."""
    results: tuple[LanguageResult, ...]

    @property
    def layers(self) -> str:
        """Layers with their mark, such as "4 searched"."""
        return f"{self.over} {self.mark}".strip()


class GateVerdict(Result):
    """Decision of the gate about the embeddings of a language, by the registry's record of decisions."""

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


class TrackedRuns(Result):
    """Address and ids of the tracking runs that a report is about."""

    uri: str = pydantic.Field(description="Of the tracking store, without credentials.")
    experiment: str = pydantic.Field(description="Id of the experiment.")
    runs: dict[str, str] = pydantic.Field(description="Ids of runs by what they did; the pipeline's own comes first.")

    @property
    def is_server(self) -> bool:
        """Whether the store is a server, with pages of its own."""
        return self.uri.startswith(("http://", "https://"))

    def link(self, run: str = "") -> str:
        """Return the address of the page of a run, or of the list of all runs if none is named.

        Where the store is no server, it is where `mlflow ui` has its pages by default.
        """
        pages = self.uri.rstrip("/") if self.is_server else _LOCAL_PAGES
        path = f"runs/{run}" if run else "runs"
        return f"{pages}/#/experiments/{self.experiment}/{path}{_TRAINING_PAGES}"


class RunRecords(Result):
    """Everything that the report shows; the content of report.json."""

    source: SourceResult
    languages: tuple[LanguageResult, ...]
    search: SearchResult | None = None
    recipe: Recipe | None = pydantic.Field(None, description="Shown at the end of the page; it names the labels.")
    failed: dict[str, str] = pydantic.Field({}, description="Why languages have no evaluation, by language.")
    refused: dict[str, str] = pydantic.Field({}, description="Why the gate did not promote languages that have one.")
    verdicts: dict[str, GateVerdict] = pydantic.Field({}, description="The gate's, by language, where it was asked.")
    tracked: TrackedRuns | None = pydantic.Field(None, description="Runs, where they were tracked.")
    answers: tuple[SampleAnswer, ...] = pydantic.Field((), description="What the served tasks were asked.")

    @classmethod
    def of(
        cls,
        source: SourceResult,
        languages: Sequence[LanguageResult],
        search: SearchResult | None = None,
        recipe: Recipe | None = None,
        failed: Mapping[str, str] = MappingProxyType({}),
        refused: Mapping[str, str] = MappingProxyType({}),
        verdicts: Mapping[str, GateVerdict] = MappingProxyType({}),
        tracked: TrackedRuns | None = None,
    ) -> Self:
        """Check that the records belong together; order them by language as given, then by layers.

        Embeddings that were evaluated twice (the depth searched may be the depth of all) give one row. The arguments
        are the fields of the same names; standard adaptation is compared where `languages` has any.

        Raises:
            ArtifactError: no language, or two different embeddings for one language and mini-model.
            AlignmentError: a language or the search belongs to another primary than the source.
        """
        if not languages:
            raise ArtifactError("a report needs the evaluation of at least one language; none was given.")
        distinct: dict[tuple[str, AdaptedLayers], LanguageResult] = {}
        for row in languages:
            layers = AdaptedLayers.of_result(row)
            require_aligned(f"the evaluation of {row.language!r} over {layers} layers", row.primary, source.primary)
            first = distinct.setdefault((row.language, layers), row)
            if first.embeddings != row.embeddings:
                raise ArtifactError(
                    f"language {row.language!r} has two evaluations over {layers} layers, of embeddings "
                    f"{first.embeddings} and {row.embeddings}. Give the report one of them."
                )
        if search:
            require_aligned(f"the depth search for {search.language!r}", search.primary, source.primary)
        order = list(dict.fromkeys(row.language for row in languages))
        keys = sorted(distinct, key=lambda key: (order.index(key[0]), key[1]))
        return cls(
            source=source,
            languages=tuple(distinct[key] for key in keys),
            search=search,
            recipe=recipe,
            failed=dict(failed),
            refused=dict(refused),
            verdicts=dict(verdicts),
            tracked=tracked,
        )

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

    def scores(self, task: str) -> TaskScores:
        """Return the scores on a task of the first that was tested on it: the source's, where it was."""
        return next(result.task_scores[task] for result in self._evaluations if task in result.task_scores)

    def label(self, task: str, label: str) -> str:
        """Return a label of a task with the name that the recipe has for it; the label alone without one."""
        tasks = {each.name: each for each in self.recipe.tasks} if self.recipe else {}
        return tasks[task].named(label) if task in tasks else label

    @property
    def rows(self) -> list[ResultRow]:
        """One row per language and mini-model."""
        return [
            ResultRow(name_and_tag(result.language), AdaptedLayers.of_result(result), self._mark(result), (result,))
            for result in self.languages
        ]

    @property
    def means(self) -> list[ResultRow]:
        """One row per mini-model that several languages share."""
        return _means(self.languages)

    def means_on(self, task: str) -> list[ResultRow]:
        """Return one row per mini-model that several languages share which were tested on a task."""
        return _means(self.tested_on(task))

    @property
    def layer_choices(self) -> list[AdaptedLayers]:
        """Layers that embeddings were learned over, in rising order."""
        return sorted({AdaptedLayers.of_result(row) for row in self.languages})

    @property
    def has_masked_scores(self) -> bool:
        """Whether any language was judged by masked tokens, for which some model needs an MLM head."""
        return any(result.masked for result in self.languages)

    def results_over(self, layers: AdaptedLayers) -> tuple[LanguageResult, ...]:
        """Return all languages whose embeddings were learned over these layers."""
        return tuple(row for row in self.languages if AdaptedLayers.of_result(row) == layers)

    def tested_on(self, task: str) -> tuple[LanguageResult, ...]:
        """Return all languages that were tested on a task."""
        return tuple(row for row in self.languages if task in row.task_scores)

    @property
    def building_costs(self) -> dict[AdaptedLayers, Cost]:
        """Cost of step 1b, by the layers of the mini-model that it built."""
        return {AdaptedLayers.of_result(row): row.building for row in self.languages if row.building}

    @property
    def has_fresh_layers(self) -> bool:
        """Whether any mini-model has layers that the primary does not have."""
        return any(row.fresh_layers for row in self.languages)

    def of_language(self, language: str) -> tuple[LanguageResult, ...]:
        """Return all mini-models over which a language was adapted."""
        return tuple(row for row in self.languages if row.language == language)

    @property
    def _evaluations(self) -> list[SourceResult | LanguageResult]:
        return [self.source, *self.languages]

    def _mark(self, result: LanguageResult) -> str:
        searched = self.search and (self.search.language, self.search.chosen) == (result.language, result.depth)
        return ", ".join(["standard"] * result.standard + ["searched"] * bool(searched))


def _means(results: Sequence[LanguageResult]) -> list[ResultRow]:
    by_layers: dict[AdaptedLayers, list[LanguageResult]] = {}
    for result in sorted(results, key=AdaptedLayers.of_result):
        by_layers.setdefault(AdaptedLayers.of_result(result), []).append(result)
    return [
        ResultRow(f"mean of {len(shared)}", layers, "standard" if shared[0].standard else "", tuple(shared))
        for layers, shared in by_layers.items()
        if len(shared) > 1
    ]
