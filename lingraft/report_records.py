"""What a report is made from: the source, one row per language and depth, means over languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lingraft.artifact import Artifact, Kind, require_aligned
from lingraft.config import Recipe
from lingraft.errors import ArtifactError
from lingraft.results import LanguageResult, Result, SearchResult, SourceResult

RECORDS_FILE = "report.json"


@dataclass(frozen=True)
class Row:
    """A line of a table: one adapted language, or a mean over several at one depth."""

    language: str
    depth: int
    mark: str
    """"standard" for adaptation over all layers, "searched" for the depth that the search chose."""
    results: tuple[LanguageResult, ...]

    @property
    def layers(self) -> str:
        """Depth with its mark, such as "4 searched"."""
        return f"{self.depth} {self.mark}".strip()


class Records(Result):
    """Everything that the report shows; what report.json holds."""

    source: SourceResult
    languages: tuple[LanguageResult, ...]
    search: SearchResult | None = None
    recipe: Recipe | None = None

    @classmethod
    def of(
        cls,
        source: SourceResult,
        languages: Sequence[LanguageResult],
        search: SearchResult | None = None,
        recipe: Recipe | None = None,
    ) -> Self:
        """Check that the records belong together; order them by language as given, then by depth.

        Embeddings that were evaluated twice (the depth searched may be the depth of all) give one row.

        Raises:
            ArtifactError: no language, or two different embeddings for one language and depth.
            AlignmentError: a language or the search belongs to another primary than the source.
        """
        if not languages:
            raise ArtifactError("a report needs the evaluation of at least one language; none was given.")
        for row in languages:
            require_aligned(f"the evaluation of {row.language!r} at depth {row.depth}", row.primary, source.primary)
        if search:
            require_aligned(f"the depth search for {search.language!r}", search.primary, source.primary)
        order = list(dict.fromkeys(row.language for row in languages))
        ordered = sorted(_distinct(languages), key=lambda row: (order.index(row.language), row.depth))
        return cls(source=source, languages=tuple(ordered), search=search, recipe=recipe)

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
        """Adapted languages, each once."""
        return list(dict.fromkeys(row.language for row in self.languages))

    @property
    def rows(self) -> list[Row]:
        """One row per language and depth."""
        return [Row(result.language, result.depth, self._mark(result), (result,)) for result in self.languages]

    @property
    def means(self) -> list[Row]:
        """One row per depth that several languages share."""
        by_depth = {depth: self.at(depth) for depth in sorted({row.depth for row in self.languages})}
        return [
            Row(f"mean of {len(shared)}", depth, "standard" if shared[0].standard else "", shared)
            for depth, shared in by_depth.items()
            if len(shared) > 1
        ]

    def at(self, depth: int) -> tuple[LanguageResult, ...]:
        """All languages adapted at a depth."""
        return tuple(row for row in self.languages if row.depth == depth)

    def of_language(self, language: str) -> tuple[LanguageResult, ...]:
        """All depths at which a language was adapted."""
        return tuple(row for row in self.languages if row.language == language)

    def _mark(self, result: LanguageResult) -> str:
        searched = self.search and (self.search.language, self.search.chosen) == (result.language, result.depth)
        return ", ".join(["standard"] * result.standard + ["searched"] * bool(searched))


def _distinct(languages: Sequence[LanguageResult]) -> list[LanguageResult]:
    found: dict[tuple[str, int], LanguageResult] = {}
    for row in languages:
        first = found.setdefault((row.language, row.depth), row)
        if first.embeddings != row.embeddings:
            raise ArtifactError(
                f"language {row.language!r} has two evaluations at depth {row.depth}, of embeddings "
                f"{first.embeddings} and {row.embeddings}. Give the report one of them."
            )
    return list(found.values())
