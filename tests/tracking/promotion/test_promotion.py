"""Promotion and rollback against a real store: who is champion afterwards, and what the verdict says."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.errors import GateError, NotRegisteredError, PromotionError
from lingraft.tracking.promotion import Verdict, promote, stale_champions, verdict_on
from lingraft.tracking.versions import PREVIOUS, version_of
from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = quiet


def aliases(project: Project, name: str) -> tuple[int | None, int | None]:
    return project.champion(name), project.champion(name, PREVIOUS)


def failed(verdict: Verdict) -> list[str]:
    return [check.name for check in verdict.checks if not check.passed]


def kept(project: Project, number: int) -> Verdict | None:
    return verdict_on(version_of(tracking.connect(), project.embeddings, number))


@begins_with(Prepared.CHALLENGER)
def test_a_challenger_becomes_champion_if_it_is_better_and_every_verdict_is_kept(project: Project) -> None:
    nothing_learned, worse, better = (
        project.register_embeddings(project.mark, value, masked)
        for value, masked in ((2.0, 0.05), (3.0, 0.15), (4.0, 0.3))
    )
    for number, passes in ((1, True), (nothing_learned, False)):
        dry = project.promote(project.embeddings, number, dry_run=True)
        assert (dry.passed, len(dry.checks), kept(project, number)) == (passes, 3, None)
    for number, passes, after in (
        (nothing_learned, False, (None, None)),
        (1, True, (1, None)),
        (1, True, (1, None)),
        (worse, False, (1, None)),
        (better, True, (better, 1)),
    ):
        assert project.promote(project.embeddings, number, by="alice").passed == passes
        assert aliases(project, project.embeddings) == after
    verdict, first = kept(project, worse), kept(project, 1)
    assert verdict
    assert first
    assert (verdict.passed, verdict.asked_by, verdict.before, first.before) == (False, "alice", 1, None)
    assert [check.name for check in first.checks] == ["aligned", "parity", "masked"]
    assert first.checks[2].numbers["estimate"] == pytest.approx(0.15)


@begins_with(Prepared.SECOND)
def test_a_rollback_returns_to_the_previous_champion_once(project: Project) -> None:
    assert project.roll_back(project.embeddings).version == 1
    assert aliases(project, project.embeddings) == (1, None)
    taken = kept(project, 2)
    assert taken
    assert (taken.passed, taken.checks[0].name) == (False, "rollback")
    with pytest.raises(PromotionError, match="no previous champion"):
        project.roll_back(project.embeddings)
    assert project.promote(project.embeddings, 2).passed
    assert aliases(project, project.embeddings) == (2, 1)
    MlflowClient().delete_model_version(project.embeddings, "1")
    with pytest.raises(PromotionError, match="no previous champion"):
        project.roll_back(project.embeddings)
    assert project.champion(project.embeddings) == 2


@begins_with(Prepared.CHAMPION)
def test_a_promotion_that_was_killed_between_its_aliases_is_made_by_the_next(project: Project) -> None:
    MlflowClient().set_registered_model_alias(project.embeddings, PREVIOUS, "1")
    with pytest.raises(PromotionError, match="no previous champion"):
        project.roll_back(project.embeddings)
    assert project.promote(project.embeddings, project.register_embeddings(project.mark, 2.0, masked=0.4)).passed
    assert aliases(project, project.embeddings) == (2, 1)


@begins_with(Prepared.CHAMPION)
def test_a_champion_is_compared_by_a_new_evaluation_where_text_has_changed(project: Project) -> None:
    rivals = ((2.0, 0.25), (3.0, 0.4))
    worse, better = (project.register_embeddings(project.mark, *rival, blocks="b2") for rival in rivals)
    refused = project.promote(project.embeddings, better)
    assert not refused.passed
    assert "not judged on the same items: blocks differ" in refused.checks[-1].says

    def ask(number: int, evaluation: Path) -> Verdict:
        return promote(tracking.connect(), project.embeddings, number, "a test", champion_evaluation=evaluation)

    anew = project.judged(1.0, project.mark, 0.3, blocks="b2")
    assert not ask(worse, anew).passed
    other = ask(better, project.judged(2.0, project.mark, 0.9, blocks="b2"))
    assert "judges embeddings" in other.checks[0].says
    assert ask(better, anew).checks[-1].numbers["estimate"] == pytest.approx(0.1)
    assert aliases(project, project.embeddings) == (better, 1)


@begins_with(Prepared.SECOND)
def test_a_new_primary_leaves_languages_behind_until_they_are_adapted_again(project: Project) -> None:
    number, mark = project.register_primary(2.0)
    project.promote(project.primary, number)
    client = tracking.connect()
    assert [each.name for each in stale_champions(client, project.recipe.name, mark)] == [project.embeddings]
    assert stale_champions(client, project.recipe.name, project.mark) == []
    old = project.register_embeddings(project.mark, 3.0, masked=0.9)
    assert failed(project.promote(project.embeddings, old)) == ["aligned"]
    # Worse than the champion before, which counts no more: it belongs to another primary.
    new = project.register_embeddings(mark, 4.0, masked=0.1)
    assert project.promote(project.embeddings, new).passed
    assert failed(project.roll_back(project.embeddings)) == ["aligned"]
    assert aliases(project, project.embeddings) == (new, 2)
    project.roll_back(project.primary)
    assert project.roll_back(project.embeddings).version == 2


@begins_with(Prepared.PRIMARY)
def test_a_task_of_any_kind_wants_parity_which_a_second_registration_adds(project: Project) -> None:
    kinds = ("questions", "texts")
    for kind in kinds:
        project.register_task(project.mark, f"of-{kind}", kind)
    number = project.register_embeddings(project.mark, 1.0, masked=0.2, tasks=())
    refused = project.promote(project.embeddings, number)
    assert failed(refused) == ["parity"]
    assert "no parity of of-questions, of-texts, which is served with it" in refused.checks[1].says
    tasks = [f"of-{kind}" for kind in kinds]
    assert project.register_embeddings(project.mark, 1.0, masked=0.2, tasks=tasks) == number
    assert project.promote(project.embeddings, number).passed


@begins_with(Prepared.CHAMPION)
def test_evidence_that_is_gone_or_was_exchanged_moves_nothing(project: Project) -> None:
    """Somebody puts another evaluation of the same embeddings, with better scores, into the store."""
    number = project.register_embeddings(project.mark, 2.0, masked=0.1)
    run = MlflowClient().get_model_version(project.embeddings, str(number)).tags["evaluation_run"]
    MlflowClient().log_artifacts(run, str(project.judged(2.0, project.mark, 0.9, blocks="b1")), "evaluation")
    with pytest.raises(GateError, match=rf"run {run} keeps an evaluation of fingerprint \w+, but the tag 'evaluation'"):
        project.promote(project.embeddings, number)
    run = MlflowClient().get_model_version(project.embeddings, "1").tags["evaluation_run"]
    [stored] = project.folder.parent.glob(f"artifacts/{run}/artifacts/evaluation")
    for file in stored.iterdir():
        file.unlink()
    verdict = project.promote(project.embeddings, project.register_embeddings(project.mark, 3.0, masked=0.4))
    assert failed(verdict) == ["comparable"]
    assert f"kept by run {run}, is gone" in verdict.checks[0].says
    assert project.champion(project.embeddings) == 1


def test_what_cannot_be_promoted_is_named(project: Project) -> None:
    with pytest.raises(NotRegisteredError, match="no version 7"):
        promote(tracking.connect(), project.embeddings, 7, "a test")
    number = project.register_embeddings("a1" * 32, 1.0, masked=0.2)
    with pytest.raises(GateError, match="has no champion to be aligned with"):
        project.promote(project.embeddings, number)
    MlflowClient().create_registered_model(f"{project.recipe.name}-foreign")
    MlflowClient().create_model_version(f"{project.recipe.name}-foreign", "file:///nowhere")
    with pytest.raises(PromotionError, match="lingraft has not registered it"):
        project.promote(f"{project.recipe.name}-foreign", 1)
