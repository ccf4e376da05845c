"""Promotion and rollback against a real store: who is champion afterwards, and what the record says."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.errors import GateError, NotRegisteredError, PromotionError, SupersededError
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.decisions import Decision, DecisionOutcome, Record
from lingraft.tracking.promotion.promote import languages_to_readapt, promote, reconciled_history, rollback
from lingraft.tracking.versions import version_of
from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project, lingraft
from tests.tracking_stores import quiet

pytestmark = quiet
ROOT = Path(__file__).parents[2]


def records(project: Project, name: str) -> list[Record]:
    with tracking.retrying_client() as client:
        return decisions.history(client, project.recipe.name, name)


def told(project: Project, name: str) -> list[tuple[str, int | None, int | None, str]]:
    return [
        (each.decision.action, each.decision.before, each.decision.after, str(each.outcome))
        for each in records(project, name)
    ]


def back(name: str, dry_run: bool = False) -> int | None:
    with tracking.retrying_client() as client:
        return rollback(client, name, "a test", dry_run).after


@begins_with(Prepared.CHAMPION)
def test_a_champion_is_compared_with_judgements_of_other_text_when_it_was_judged_on_that_anew(project: Project) -> None:
    rivals = ((2.0, 0.25), (3.0, 0.4))
    worse, better = (project.register_embeddings(project.mark, *rival, blocks="b2") for rival in rivals)
    refused = project.promote(project.embeddings, better)
    assert not refused.moved
    assert "not judged on the same items: blocks differ" in refused.checks[-1].says
    judge_anew(project, 1, project.judged(1.0, project.mark, 0.3, blocks="b2"))
    assert not project.promote(project.embeddings, worse).moved
    assert project.promote(project.embeddings, better).checks[-1].numbers["estimate"] == pytest.approx(0.1)
    assert project.champion(project.embeddings) == better
    with pytest.raises(GateError, match=r"judges embeddings .* but version 1 of"):
        judge_anew(project, 1, project.judged(2.0, project.mark, 0.9, blocks="b2"))


def judge_anew(project: Project, number: int, evaluation: Path) -> None:
    recipe = project.folder / "recipe.toml"
    recipe.write_text((ROOT / "tiny.toml").read_text().replace('"tiny"', f'"{project.recipe.name}"', 1))
    lingraft("judge", project.embeddings, number, "--recipe", recipe, "--evaluation", evaluation)


@begins_with(Prepared.SECOND)
def test_a_new_primary_leaves_languages_behind_until_they_are_adapted_again(project: Project) -> None:
    number, mark = project.register_primary(2.0)
    project.promote(project.primary, number)
    with tracking.retrying_client() as client:
        assert languages_to_readapt(client, project.recipe.name, mark) == ["de"]
        assert languages_to_readapt(client, project.recipe.name, project.mark) == []
    old = project.register_embeddings(project.mark, 3.0, masked=0.9)
    refused = project.promote(project.embeddings, old)
    assert [check.name for check in refused.checks if not check.passed] == ["aligned"]
    # Worse than the champion before, which counts no more: it belongs to another primary.
    new = project.register_embeddings(mark, 4.0, masked=0.1)
    assert project.promote(project.embeddings, new).moved
    with pytest.raises(PromotionError, match="belongs to another primary"):
        back(project.embeddings)
    back(project.primary)
    assert back(project.embeddings) == 2


@begins_with(Prepared.PRIMARY)
def test_a_task_of_any_kind_wants_parity_which_a_second_registration_adds(project: Project) -> None:
    kinds = ("questions", "texts")
    for kind in kinds:
        project.register_task(project.mark, f"of-{kind}", kind)
    number = project.register_embeddings(project.mark, 1.0, masked=0.2, tasks=())
    refused = project.promote(project.embeddings, number)
    assert [check.name for check in refused.checks if not check.passed] == ["parity"]
    named = ", ".join(f"of-{kind}" for kind in kinds)
    assert f"no parity of {named}, which the registry has for this primary" in refused.checks[1].says
    tasks = [f"of-{kind}" for kind in kinds]
    assert project.register_embeddings(project.mark, 1.0, masked=0.2, tasks=tasks) == number
    assert project.promote(project.embeddings, number).moved


@begins_with(Prepared.SECOND)
def test_a_rollback_returns_step_by_step_and_is_kept(project: Project) -> None:
    assert back(project.embeddings, dry_run=True) == 1
    assert project.champion(project.embeddings) == 2
    assert [back(project.embeddings), back(project.embeddings)] == [1, None]
    assert project.champion(project.embeddings) is None
    with pytest.raises(PromotionError, match="no promotion of this model is left"):
        back(project.embeddings)
    assert told(project, project.embeddings)[2:] == [("rollback", 2, 1, "done"), ("rollback", 1, None, "done")]


@begins_with(Prepared.SECOND)
def test_a_version_that_was_deleted_cannot_be_returned_to(project: Project) -> None:
    MlflowClient().delete_model_version(project.embeddings, "1")
    with pytest.raises(PromotionError, match=r"version 1 of .* was deleted"):
        back(project.embeddings)
    assert project.champion(project.embeddings) == 2


@begins_with(Prepared.CHALLENGER)
@pytest.mark.parametrize("moved", [False, True])
def test_a_decision_that_was_broken_off_is_finished_by_the_next_command(project: Project, moved: bool) -> None:
    """As a process leaves it that is killed before or after it has moved the alias."""
    intend(project, 1)
    if moved:
        MlflowClient().set_registered_model_alias(project.embeddings, tracking.CHAMPION, "1")
    assert back(project.embeddings) is None
    assert told(project, project.embeddings) == [("promote", None, 1, "done"), ("rollback", 1, None, "done")]


@begins_with(Prepared.SECOND)
def test_a_version_that_the_alias_was_moved_to_by_hand_is_put_before_the_gate_and_recorded(project: Project) -> None:
    better, worse = (project.register_embeddings(project.mark, *rival) for rival in ((3.0, 0.6), (4.0, 0.1)))
    for number, outcome in ((worse, "refused"), (better, "done")):
        MlflowClient().set_registered_model_alias(project.embeddings, tracking.CHAMPION, str(number))
        decided = project.promote(project.embeddings, number)
        assert (decided.before, decided.after == number) == (2, number == better)
        assert told(project, project.embeddings)[-1] == ("promote", 2, number, outcome)
    assert project.promote(project.embeddings, better).record is None
    assert back(project.embeddings) == 2


@begins_with(Prepared.CHAMPION)
def test_evidence_of_a_champion_that_is_gone_is_a_refusal_with_a_reason(project: Project) -> None:
    run = MlflowClient().get_model_version(project.embeddings, "1").tags["evaluation_run"]
    [kept] = project.folder.parent.glob(f"artifacts/{run}/artifacts/evaluation/result.json")
    kept.unlink()
    for other in kept.parent.iterdir():
        other.unlink()
    decided = project.promote(project.embeddings, project.register_embeddings(project.mark, 2.0, masked=0.4))
    assert not decided.moved
    assert f"kept by run {run}, is gone" in decided.checks[0].says


@begins_with(Prepared.CHAMPION)
def test_an_evaluation_that_was_exchanged_since_the_version_was_judged_is_refused(project: Project) -> None:
    """Somebody puts another evaluation of the same embeddings, with better scores, into the store."""
    number = project.register_embeddings(project.mark, 2.0, masked=0.1)
    run = MlflowClient().get_model_version(project.embeddings, str(number)).tags["evaluation_run"]
    MlflowClient().log_artifacts(run, str(project.judged(2.0, project.mark, 0.9, blocks="b1")), "evaluation")
    with pytest.raises(GateError, match=rf"run {run} keeps an evaluation of fingerprint \w+, but the tag 'evaluation'"):
        project.promote(project.embeddings, number)
    assert project.champion(project.embeddings) == 1
    judge_anew(project, number, project.judged(2.0, project.mark, 0.3, blocks="b1"))
    assert project.promote(project.embeddings, number).moved


def test_what_cannot_be_promoted_is_named(project: Project) -> None:
    with pytest.raises(NotRegisteredError, match="no version 7"), tracking.retrying_client() as client:
        promote(client, project.embeddings, 7, "a test")
    number = project.register_embeddings("a1" * 32, 1.0, masked=0.2)
    with pytest.raises(GateError, match="has no champion to be aligned with"):
        project.promote(project.embeddings, number)
    MlflowClient().create_registered_model(f"{project.recipe.name}-foreign")
    MlflowClient().create_model_version(f"{project.recipe.name}-foreign", "file:///nowhere")
    with pytest.raises(PromotionError, match="lingraft has not registered it"):
        project.promote(f"{project.recipe.name}-foreign", 1)


@begins_with(Prepared.CHALLENGER)
def test_a_challenger_becomes_champion_if_it_is_better_and_every_decision_is_recorded(project: Project) -> None:
    nothing_learned, worse, better = (
        project.register_embeddings(project.mark, value, masked)
        for value, masked in ((2.0, 0.05), (3.0, 0.15), (4.0, 0.3))
    )
    for number, after in ((1, 1), (nothing_learned, None)):
        dry = project.promote(project.embeddings, number, dry_run=True)
        assert (dry.after, dry.record, len(dry.checks)) == (after, None, 3)
    assert records(project, project.embeddings) == []
    assert not project.promote(project.embeddings, nothing_learned).moved
    decided = project.promote(project.embeddings, 1, by="alice")
    assert (decided.before, decided.after, project.champion(project.embeddings)) == (None, 1, 1)
    record = records(project, project.embeddings)[-1]
    assert (record.outcome, record.decision.asked_by) == (DecisionOutcome.DONE, "alice")
    assert [check.name for check in record.decision.checks] == ["aligned", "parity", "masked"]
    assert record.decision.checks[2].numbers["estimate"] == pytest.approx(0.15)
    for number in (1, worse, better):
        project.promote(project.embeddings, number)
    assert project.champion(project.embeddings) == better
    assert told(project, project.embeddings) == [
        ("promote", None, nothing_learned, "refused"),
        ("promote", None, 1, "done"),
        ("promote", 1, worse, "refused"),
        ("promote", 1, better, "done"),
    ]
    with tracking.retrying_client() as client:
        assert decisions.missing_numbers(client, project.recipe.name) == []
        MlflowClient().delete_model_version(decisions.record_name(project.recipe.name), "2")
        assert decisions.missing_numbers(client, project.recipe.name) == [2]


def intend(project: Project, number: int, before: int | None = None, knew: int = 0) -> Record:
    made = Decision(
        action="promote",
        model=project.embeddings,
        asked_by="somebody",
        asked_at=decisions.now(),
        before=before,
        after=number,
        fingerprint="f",
        knew=knew,
    )
    with tracking.retrying_client() as client:
        version = version_of(client, project.embeddings, number)
        return decisions.append(client, project.recipe.name, made, version, DecisionOutcome.INTENDED)


@begins_with(Prepared.CHALLENGER)
def test_of_two_that_were_broken_off_at_once_the_first_is_finished(project: Project) -> None:
    other = project.register_embeddings(project.mark, 2.0, 0.2)
    for number in (other, 1):
        intend(project, number)
    later, _ = project.register_primary(2.0)
    project.promote(project.primary, later)  # a decision about another model does not come between
    with tracking.retrying_client() as client:
        assert len(reconciled_history(client, project.recipe.name, project.embeddings)) == 2
    assert project.champion(project.embeddings) == other
    assert [outcome for *_, outcome in told(project, project.embeddings)] == ["done", "overtaken"]


@contextlib.contextmanager
def just_after_the_record_was_read(project: Project, work: Callable[[], object]) -> Iterator[tracking.RetryingClient]:
    """Ask as `retrying_client` does; somebody else does some work as soon as the record of decisions was read."""

    class Interrupted(tracking.RetryingClient):
        interrupted = False

        def call(self, call: Callable[[], Any]) -> Any:
            answer = super().call(call)
            asked = getattr(call, "args", ())
            if not self.interrupted and any(decisions.record_name(project.recipe.name) in str(each) for each in asked):
                self.interrupted = True
                work()
            return answer

    with tracking.retrying_client():
        yield Interrupted(60.0, None)


@begins_with(Prepared.CHAMPION)
@pytest.mark.parametrize("promotes", [True, False], ids=["promotion", "rollback"])
def test_nothing_is_decided_against_an_alias_that_has_yet_to_follow_the_record(
    project: Project, promotes: bool
) -> None:
    """The other decision is written down while this one looks, and its alias has not moved."""
    better, worse = (project.register_embeddings(project.mark, *rival) for rival in ((2.0, 0.3), (3.0, 0.25)))
    with just_after_the_record_was_read(project, lambda: intend(project, better, before=1, knew=2)) as client:
        decide = partial(promote, number=worse) if promotes else rollback
        with pytest.raises(SupersededError, match=f"somebody decided to promote version {better}"):
            decide(client, project.embeddings, asked_by="a test")
        decided = decide(client, project.embeddings, asked_by="a test")
    after = better if promotes else 1
    assert (decided.before, decided.moved, project.champion(project.embeddings)) == (better, not promotes, after)
