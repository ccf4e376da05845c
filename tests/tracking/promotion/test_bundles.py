"""What a bundle must have before it takes the champion's place, against a real store."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.errors import ArtifactError, PromotionError
from lingraft.tracking.gate import check_parity
from lingraft.tracking.promotion import AllowedChanges, Verdict, _change_checks
from lingraft.tracking.tags import parity_of
from lingraft.tracking.versions import Version
from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project, lingraft, speaking
from tests.tracking_stores import quiet

pytestmark = quiet
SERVED = Prepared.FILLED
"""Version 1 of the bundle, English and German, is champion."""
TAGS = {
    "kind": "bundle",
    "languages": "en,de",
    "aligned_with": "p",
    "answers": json.dumps(["texts", ["a", "b"]]),
}
BUNDLE = Version("b", 1, TAGS, ("champion",), "", "", None)


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


def failed(verdict: Verdict) -> list[str]:
    return [check.name for check in verdict.checks if not check.passed]


@begins_with(SERVED)
def test_a_bundle_with_one_language_more_becomes_champion_and_gives_it_up_only_by_name(project: Project) -> None:
    number = project.register_bundle(7.0, hashes(project, "de", "tr"))
    verdict = project.promote(project.bundle, number)
    assert (verdict.passed, project.champion(project.bundle)) == (True, number)
    names = [check.name for check in verdict.checks]
    assert names == ["aligned", "languages", "primary", "labels", "parity", "embeddings"]
    for arguments in ((), ("--dry-run",)):
        with pytest.raises(PromotionError, match=r"version 1 of .* is not promoted. 'tr' would leave production"):
            lingraft("promote", project.bundle, "--previous", *arguments)
    assert project.champion(project.bundle) == number
    lingraft("promote", project.bundle, "--previous", "--drop-language", "tr")
    assert project.champion(project.bundle) == 1


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
    assert "but for 'de', which somebody named" in lingraft("promote", project.bundle, number, "--drop-language", "de")
    assert project.champion(project.bundle) == number


@pytest.mark.parametrize(
    ("tag", "value", "option", "check"),
    [
        ("answers", json.dumps(["texts", ["b", "a"]]), "new_labels", "labels"),
        ("answers", json.dumps(["pairs", ["a", "b"]]), "new_labels", "labels"),
        ("aligned_with", "another", "new_primary", "primary"),
    ],
    ids=["labels in another order", "another kind of task", "another primary"],
)
def test_other_labels_and_another_primary_need_to_be_asked_for(tag: str, value: str, option: str, check: str) -> None:
    other = replace(BUNDLE, number=2, tags=TAGS | {tag: value})
    for allowed in (AllowedChanges(), AllowedChanges(new_labels=True), AllowedChanges(new_primary=True)):
        unmet = [each for each in _change_checks(BUNDLE, other, allowed) if not each.passed]
        assert [each.name for each in unmet] == ([] if getattr(allowed, option) else [check])
        assert all(f"by name: --{option.replace('_', '-')}" in each.says for each in unmet)


@begins_with(SERVED)
def test_a_bundle_that_does_not_compute_what_pytorch_does_is_not_served(project: Project) -> None:
    far = {"fp32": {"en": {"difference": 1e-6}, "de": {"difference": 2e-4}}}
    number = project.register_bundle(7.0, hashes(project, "de"), parity=far)
    assert failed(project.promote(project.bundle, number)) == ["parity"]


@pytest.mark.parametrize("parity", [{"en": 1e-6}, {"en": 1e-6, "de": float("nan")}])
def test_a_parity_that_is_unknown_or_no_number_is_a_refusal(parity: dict[str, float]) -> None:
    assert not check_parity("version 1", parity, ["en", "de"]).passed


@begins_with(SERVED)
def test_embeddings_that_the_gate_has_not_accepted_are_not_served(project: Project) -> None:
    refused = project.register_embeddings(project.mark, 40.0, masked=0.05)
    assert not project.promote(project.embeddings, refused).passed
    mark = Artifact.load(project.folder / "embeddings-40.0", Kind.EMBEDDINGS).fingerprint
    for value, unknown in ((7.0, mark), (8.0, "c3" * 32)):
        number = project.register_bundle(value, {"primary": project.mark, "embeddings-de": unknown})
        assert failed(project.promote(project.bundle, number)) == ["embeddings"]
    assert project.champion(project.bundle) == 1


@begins_with(SERVED)
def test_changes_to_production_are_not_asked_of_other_models(project: Project) -> None:
    for command in (("promote", project.embeddings, 1), ("promote", project.embeddings, "--previous")):
        with pytest.raises(PromotionError, match=r"is no bundle, so it has no languages"):
            lingraft(*command, "--drop-language", "de")
    assert project.champion(project.embeddings) == 2


@pytest.mark.parametrize("record", [{"parity": {"fp32": {"en": {}}}}, {"parity": {"fp32": {"en": "x"}}}, {}], ids=str)
def test_a_parity_that_is_forged_or_missing_is_refused(record: dict[str, Any]) -> None:
    details = {"languages": ["en"], "kind": "texts", "labels": [], **speaking("en")}
    manifest = Manifest(kind=Kind.BUNDLE, language="en", details=details, record=record)
    with pytest.raises(ArtifactError, match=r"the manifest of bundle \w{12} is damaged: .*parity"):
        parity_of(manifest)
