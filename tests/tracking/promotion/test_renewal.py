"""Which embeddings a bundle's new version is made of, against a real store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import embeddings_name
from lingraft.tracking.bundles import NewBundle, renew_bundle
from lingraft.tracking.promotion import AllowedChanges
from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = [quiet, begins_with(Prepared.LEARNED)]
VALUES: Iterator[float] = iter(float(number) for number in range(50, 99))


def learned(project: Project, language: str, masked: float = 0.3, primary: str = "") -> Path:
    value = next(VALUES)
    number = project.register_embeddings(primary or project.mark, value, masked, language=language)
    assert project.promote(embeddings_name(project.recipe, language), number).passed
    return project.folder / f"embeddings-{value}"


def renewed(
    project: Project,
    brought: Mapping[str, Path],
    primary: str = "",
    make: Callable[[Sequence[Path]], Artifact] | None = None,
    **allowed: object,
) -> NewBundle:
    mark = primary or project.mark
    with tracking.stage(project.run, "bundle-topic") as stage:
        return renew_bundle(
            stage=stage,
            name=project.bundle,
            primary=mark,
            brought=brought,
            make=make or partial(project.export, mark),
            tags={},
            allowed=AllowedChanges(**allowed),  # type: ignore[arg-type]
            asked_by="a test",
        )


def first(project: Project, *languages: str) -> dict[str, Path]:
    """The embeddings that the project begins with."""
    values = {"de": 11.0, "el": 12.0, "tr": 13.0}
    return {language: project.folder / f"embeddings-{values[language]}" for language in languages}


def held(renewal: NewBundle) -> dict[str, str]:
    hashes = renewal.made.manifest.data_hashes
    languages = renewal.made.manifest.details["languages"]
    return {language: hashes[f"embeddings-{language}"] for language in languages if language != "en"}


def mark_of(embeddings: Path) -> str:
    return Artifact.load(embeddings, Kind.EMBEDDINGS).fingerprint


def test_languages_in_production_are_taken_along_by_their_champion_and_else_as_they_are_served(
    project: Project,
) -> None:
    begun = first(project, "tr", "de", "el")
    marks = {language: mark_of(folder) for language, folder in begun.items()}
    assert held(renewed(project, {language: begun[language] for language in ("tr", "de")})) == {
        "tr": marks["tr"],
        "de": marks["de"],
    }
    better = mark_of(learned(project, "de", masked=0.5))
    greek = {"el": begun["el"]}
    found = renewed(project, greek)
    assert (found.refused, held(found)) == (None, {"tr": marks["tr"], "de": better, "el": marks["el"]})
    project.roll_back(project.embeddings)
    found = renewed(project, greek)
    assert (found.refused, held(found)["de"]) == (None, marks["de"])


def test_of_two_runs_at_once_neither_takes_the_others_language_away(project: Project) -> None:
    made: list[int] = []
    renewed(project, first(project, "de"))

    def make(folders: Sequence[Path]) -> Artifact:
        made.append(len(folders))
        if len(made) == 1:  # meanwhile
            assert renewed(project, first(project, "el")).refused is None
        return project.export(project.mark, folders)

    found = renewed(project, first(project, "tr"), make=make)
    assert (found.refused, [*held(found)], made) == (None, ["de", "el", "tr"], [2, 3])


def test_a_new_primary_comes_with_all_languages_or_with_names(project: Project) -> None:
    renewed(project, first(project, "de", "tr"))
    number, mark = project.register_primary(9.0)
    project.promote(project.primary, number)
    german = learned(project, "de", primary=mark)
    refused = renewed(project, {"de": german}, mark, new_primary=True).refused
    assert refused
    assert "'tr' would leave production" in refused
    assert project.champion(project.bundle) == 1
    turkish = learned(project, "tr", primary=mark)
    assert "Ask for the new primary by name: --new-primary" in str(renewed(project, {"tr": turkish}, mark).refused)
    assert renewed(project, {"tr": turkish}, mark, new_primary=True).refused is None
    assert project.champion(project.bundle) == 3
