"""What a bundle must have before it takes the champion's place, against a real store."""

from dataclasses import replace
from typing import Any

import pytest
from mlflow import MlflowClient

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.errors import ArtifactError, PromotionError
from lingraft.tracking import CHAMPION
from lingraft.tracking.promotion.bundle_gate import AllowedChanges, BundleChange, BundleContent
from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project, lingraft, speaking
from tests.tracking_stores import quiet

pytestmark = quiet
SERVED = Prepared.FILLED
"""Version 1 of the bundle, English and German, is champion."""
CONTENT = BundleContent(
    title="version 1",
    source="en",
    languages=("en", "de"),
    primary="p",
    answers=("texts", ("a", "b")),
    embeddings={"de": "d"},
    parity={"en": 1e-6, "de": 1e-6},
    examples={},
)


def hashes(project: Project, *languages: str) -> dict[str, str]:
    """Inputs of a bundle with German as it is served, and with other languages, whose embeddings the gate accepts."""
    found = {"primary": project.mark}
    german = Artifact.load(project.folder / "embeddings-2.0", Kind.EMBEDDINGS).fingerprint
    for value, language in enumerate(languages, start=20):
        if language != "de":
            project.promote(
                f"{project.recipe.name}-embeddings-{language}",
                project.register_embeddings(project.mark, float(value), masked=0.3, language=language),
            )
        folder = project.folder / f"embeddings-{float(value)}"
        mark = german if language == "de" else Artifact.load(folder, Kind.EMBEDDINGS).fingerprint
        found[f"embeddings-{language}"] = mark
    return found


def failed(project: Project, number: int, **allowed: object) -> list[str]:
    """Checks that a promotion of the bundle fails by; the champion is the same afterwards."""
    decided = project.promote(project.bundle, number, **allowed)
    assert project.champion(project.bundle) == 1
    return [check.name for check in decided.checks if not check.passed]


@begins_with(SERVED)
def test_a_bundle_with_one_language_more_becomes_champion_and_gives_it_up_only_by_name(project: Project) -> None:
    number = project.register_bundle(7.0, hashes(project, "de", "tr"))
    decided = project.promote(project.bundle, number)
    assert (decided.moved, project.champion(project.bundle)) == (True, number)
    names = [check.name for check in decided.checks]
    assert names == ["aligned", "languages", "primary", "labels", "parity", "embeddings"]
    assert decided.record
    assert (decided.record.decision.languages, decided.record.decision.dropped) == (("en", "de", "tr"), ())
    for arguments in ((), ("--dry-run",)):
        with pytest.raises(PromotionError, match=r"is not taken back. 'tr' would leave production"):
            lingraft("rollback", project.bundle, *arguments)
    assert project.champion(project.bundle) == number
    lingraft("rollback", project.bundle, "--drop-language", "tr")
    assert project.champion(project.bundle) == 1
    # Before the first version there was none, so the next one would take all.
    with pytest.raises(PromotionError, match="'en', 'de' would leave production"):
        project.rollback(project.bundle)
    assert project.rollback(project.bundle, drop_languages=("en", "de")).after is None


@begins_with(SERVED)
def test_a_language_leaves_by_a_promotion_only_if_it_is_named(project: Project) -> None:
    number = project.register_bundle(7.0, {"primary": project.mark})
    with pytest.raises(PromotionError, match=r"'de' would leave production: .*--drop-language de"):
        lingraft("promote", project.bundle, number)
    with pytest.raises(
        PromotionError, match=r"--drop-language names 'dee', .* champion has 'en', 'de'; 'de' would leave"
    ):
        lingraft("promote", project.bundle, number, "--drop-language", "dee")
    assert project.champion(project.bundle) == 1
    assert ", without de: done" in lingraft("promote", project.bundle, number, "--drop-language", "de")
    assert project.champion(project.bundle) == number


@pytest.mark.parametrize(
    ("changes", "option", "check"),
    [
        ({"answers": ("texts", ("b", "a"))}, "new_labels", "labels"),
        ({"answers": ("pairs", ("a", "b"))}, "new_labels", "labels"),
        ({"primary": "another"}, "new_primary", "primary"),
    ],
    ids=["labels in another order", "another kind of task", "another primary"],
)
def test_other_labels_and_another_primary_need_to_be_asked_for(
    changes: dict[str, Any], option: str, check: str
) -> None:
    change = BundleChange(CONTENT, replace(CONTENT, title="version 2", **changes))
    for allowed in (AllowedChanges(), AllowedChanges(new_labels=True), AllowedChanges(new_primary=True)):
        unmet = [each for each in change.checks(allowed) if not each.passed]
        assert [each.name for each in unmet] == ([] if getattr(allowed, option) else [check])
        assert all(f"by name: --{option.replace('_', '-')}" in each.says for each in unmet)


@pytest.mark.parametrize("parity", [{"en": 1e-6, "de": 2e-4}, {"en": 0.0}, {"en": 0.0, "de": float("nan")}])
def test_a_bundle_that_does_not_compute_what_pytorch_does_is_not_served(parity: dict[str, float]) -> None:
    change = BundleChange(CONTENT, replace(CONTENT, parity=parity))
    assert [check.name for check in change.gate_checks(["d"]) if not check.passed] == ["parity"]
    assert all(check.passed for check in BundleChange(CONTENT, CONTENT).gate_checks(["d"]))


@begins_with(SERVED)
def test_embeddings_that_the_gate_has_not_accepted_are_not_served(project: Project) -> None:
    refused = project.register_embeddings(project.mark, 40.0, masked=0.05)
    assert not project.promote(project.embeddings, refused).moved
    mark = Artifact.load(project.folder / "embeddings-40.0", Kind.EMBEDDINGS).fingerprint
    for value, unknown in ((7.0, mark), (8.0, "c3" * 32)):
        number = project.register_bundle(value, {"primary": project.mark, "embeddings-de": unknown})
        assert failed(project, number) == ["embeddings"]


@begins_with(SERVED)
def test_changes_to_production_are_not_asked_of_other_models(project: Project) -> None:
    for command in (("promote", project.embeddings, 1), ("rollback", project.embeddings)):
        with pytest.raises(PromotionError, match=r"is no bundle, so it has no languages"):
            lingraft(*command, "--drop-language", "de")
    assert project.champion(project.embeddings) == 2


@begins_with(SERVED)
def test_an_alias_that_somebody_has_moved_by_hand_takes_no_language_out_of_the_next_bundle(project: Project) -> None:
    project.promote(project.bundle, project.register_bundle(7.0, hashes(project, "de", "tr")))
    smaller = project.register_bundle(8.0, hashes(project, "de"))
    client = MlflowClient()
    client.set_registered_model_alias(project.bundle, CHAMPION, "1")
    assert failed(project, smaller) == ["languages"]
    client.delete_registered_model_alias(project.bundle, CHAMPION)
    refused = project.promote(project.bundle, smaller)
    assert [check.name for check in refused.checks if not check.passed] == ["languages"]
    assert project.promote(project.bundle, smaller, drop_languages=("tr",)).moved


@begins_with(SERVED)
def test_a_bundle_that_the_alias_was_moved_to_by_hand_is_held_against_the_recorded_champion(project: Project) -> None:
    unknown = project.register_bundle(7.0, {"primary": project.mark, "embeddings-tr": "c3" * 32}, labels=["b", "a"])
    MlflowClient().set_registered_model_alias(project.bundle, CHAMPION, str(unknown))
    refused = project.promote(project.bundle, unknown)
    assert [check.name for check in refused.checks if not check.passed] == ["languages", "labels", "embeddings"]


def test_a_bundle_whose_manifest_is_damaged_is_replaced_by_one_with_its_languages_whose_labels_are_allowed() -> None:
    tags = {"language": "en", "aligned_with": "p", "data.embeddings-de": "d", "data.primary": "p"}
    damaged = BundleContent.of_tags("version 1", tags)
    assert (damaged.languages, damaged.primary) == (("en", "de"), "p")
    whole = replace(CONTENT, title="version 2")
    smaller = replace(whole, languages=("en",))
    for new, allowed, unmet in (
        (whole, AllowedChanges(), ["labels"]),
        (whole, AllowedChanges(new_labels=True), []),
        (smaller, AllowedChanges(new_labels=True), ["languages"]),
    ):
        checks = BundleChange(damaged, new).checks(allowed)
        assert [check.name for check in checks if not check.passed] == unmet


@pytest.mark.parametrize("record", [{"parity": {"fp32": {"en": {}}}}, {"parity": {"fp32": {"en": "x"}}}, {}], ids=str)
def test_a_parity_that_is_forged_or_missing_is_refused(record: dict[str, Any]) -> None:
    details = {"languages": ["en"], "kind": "texts", "labels": [], **speaking("en")}
    manifest = Manifest(kind=Kind.BUNDLE, language="en", details=details, record=record)
    with pytest.raises(ArtifactError, match=r"the manifest of bundle \w{12} is damaged: .*parity"):
        BundleContent.of("version 7", manifest)
