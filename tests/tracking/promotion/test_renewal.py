"""Which embeddings a bundle's new version is made of, against a real store."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import embeddings_name
from lingraft.tracking.promotion.bundle_gate import AllowedChanges
from lingraft.tracking.promotion.renewal import Renewal, renew
from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = quiet
VALUES: Iterator[float] = iter(float(number) for number in range(50, 99))


def learned(project: Project, language: str, masked: float = 0.3, primary: str = "") -> Path:
    value = next(VALUES)
    number = project.register_embeddings(primary or project.mark, value, masked, language=language)
    assert project.promote(embeddings_name(project.recipe, language), number).after == number
    return project.folder / f"embeddings-{value}"


def renewed(project: Project, brought: Mapping[str, Path], primary: str = "", **allowed: object) -> Renewal:
    mark = primary or project.mark

    def make(folders: Sequence[Path]) -> Artifact:
        return project.export(mark, folders)

    with tracking.stage(project.run, "bundle-topic") as stage:
        return renew(
            stage=stage,
            name=project.bundle,
            primary=mark,
            brought=brought,
            make=make,
            tags={},
            allowed=AllowedChanges(**allowed),  # type: ignore[arg-type]
            asked_by="a test",
        )


def held(renewal: Renewal) -> dict[str, str]:
    hashes = renewal.made.manifest.data_hashes
    languages = renewal.made.manifest.details["languages"]
    return {language: hashes[f"embeddings-{language}"] for language in languages if language != "en"}


def mark_of(embeddings: Path) -> str:
    return Artifact.load(embeddings, Kind.EMBEDDINGS).fingerprint


@begins_with(Prepared.PRIMARY)
def test_the_champions_languages_are_taken_along_in_their_order(project: Project) -> None:
    turkish, german, greek = (learned(project, language) for language in ("tr", "de", "el"))
    assert held(renewed(project, {"tr": turkish, "de": german})) == {"tr": mark_of(turkish), "de": mark_of(german)}
    found = renewed(project, {"el": greek})
    assert held(found) == {"tr": mark_of(turkish), "de": mark_of(german), "el": mark_of(greek)}
    assert found.refused is None
    better = learned(project, "de", masked=0.5)
    assert held(renewed(project, {"de": better}))["de"] == mark_of(better)
    assert project.champion(project.bundle) == 3


@begins_with(Prepared.PRIMARY)
def test_of_a_language_that_is_taken_along_the_champion_counts_and_else_what_is_served(project: Project) -> None:
    first = learned(project, "de")
    renewed(project, {"de": first})
    second = learned(project, "de", masked=0.5)
    assert held(renewed(project, {"tr": learned(project, "tr")}))["de"] == mark_of(second)
    project.rollback(project.embeddings)
    assert held(renewed(project, {"el": learned(project, "el")}))["de"] == mark_of(first)
    project.rollback(project.embeddings)
    assert project.champion(project.embeddings) is None
    found = renewed(project, {"el": learned(project, "el", masked=0.5)})
    assert (found.refused, held(found)["de"]) == (None, mark_of(first))


@begins_with(Prepared.PRIMARY)
def test_of_two_runs_at_once_neither_takes_the_others_language_away(project: Project) -> None:
    renewed(project, {"de": learned(project, "de")})
    turkish, greek, made = learned(project, "tr"), learned(project, "el"), []

    def make(folders: Sequence[Path]) -> Artifact:
        made.append([*folders])
        if len(made) == 1:  # meanwhile
            assert renewed(project, {"el": greek}).refused is None
        return project.export(project.mark, folders)

    with tracking.stage(project.run, "bundle-topic") as stage:
        found = renew(
            stage=stage,
            name=project.bundle,
            primary=project.mark,
            brought={"tr": turkish},
            make=make,
            tags={},
            allowed=AllowedChanges(),
            asked_by="me",
        )
    assert (found.refused, [*held(found)], [len(folders) for folders in made]) == (None, ["de", "el", "tr"], [2, 3])


@begins_with(Prepared.PRIMARY)
def test_a_new_primary_comes_with_all_languages_or_with_names(project: Project) -> None:
    renewed(project, {language: learned(project, language) for language in ("de", "tr")})
    number, mark = project.register_primary(9.0)
    project.promote(project.primary, number)
    german = learned(project, "de", primary=mark)
    refused = renewed(project, {"de": german}, mark, new_primary=True).refused
    assert refused
    assert "'tr' would leave production" in refused
    assert project.champion(project.bundle) == 1
    turkish = learned(project, "tr", primary=mark)
    assert "Ask for the new one by name: --new-primary" in str(renewed(project, {"tr": turkish}, mark).refused)
    assert renewed(project, {"tr": turkish}, mark, new_primary=True).refused is None
    assert project.champion(project.bundle) == 3


@begins_with(Prepared.PRIMARY)
@pytest.mark.parametrize("named", [("tr",), ("tr", "sw", "en")], ids=["one", "others that do not leave as well"])
def test_a_language_that_is_named_is_left_out(project: Project, named: tuple[str, ...]) -> None:
    both = {language: learned(project, language) for language in ("de", "tr")}
    renewed(project, both)
    found = renewed(project, both, drop_languages=named)
    assert (found.refused, [*held(found)]) == (None, ["de"])
    assert found.decided.record
    assert found.decided.record.decision.dropped == ("tr",)
