from types import SimpleNamespace

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.errors import AlignmentError, ArtifactError
from lingraft.reports.run.records import RunRecords, TrackedRun, layers_of


def test_languages_stand_in_the_order_given_and_their_layers_in_rising_order(made_up: SimpleNamespace) -> None:
    post = made_up.language("tr", 2, system="MINIPOST", fresh_layers=2)
    pairs = made_up.language("el", 4, system="MINIPOST", learned_over=6)
    rows = RunRecords.of(made_up.source(), [*made_up.languages(), post, pairs]).languages
    assert [(row.language, layers_of(row)) for row in rows] == [
        ("de", "2 of 6"),
        ("de", "6 of 6"),
        ("tr", "2 of 6"),
        ("tr", "2 of 6 + 2 fresh"),
        ("tr", "4 of 6"),
        ("tr", "6 of 6"),
        ("el", "2 of 6"),
        ("el", "6 of 6"),
        ("el", "6 of 6"),
    ]


def test_embeddings_evaluated_twice_give_one_row(made_up: SimpleNamespace) -> None:
    records = RunRecords.of(made_up.source(), [made_up.language("de", 2), made_up.language("de", 2)])
    assert len(records.languages) == 1


def test_results_that_do_not_belong_together_are_refused(made_up: SimpleNamespace) -> None:
    with pytest.raises(ArtifactError, match="at least one language"):
        RunRecords.of(made_up.source(), [])
    with pytest.raises(ArtifactError, match=r"over 2 of 6 layers has two evaluations.*eee.*fff"):
        RunRecords.of(made_up.source(), [made_up.language("de", 2), made_up.language("de", 2, embeddings="f" * 64)])
    with pytest.raises(AlignmentError, match=f"{'b2' * 32}.*{made_up.primary}"):
        RunRecords.of(made_up.source(), [made_up.language("de", 2, primary="b2" * 32)])


def test_a_class_is_warned_of_where_it_is_never_found(made_up: SimpleNamespace) -> None:
    def judged(language: str, confusion: list[list[int]]) -> object:
        task = made_up.task(0.4, labels=["yes", "no"]).model_copy(update={"confusion": confusion})
        return made_up.language(language, 2, task)

    languages = [judged("de", [[6, 0], [6, 0]]), judged("tr", [[3, 3], [1, 5]]), judged("el", [[6, 0], [6, 0]])]
    [warning] = RunRecords.of(made_up.source(), languages).warnings()
    assert warning == "help-topic: no test example of no is recognised in German (2 of 6), Greek (2 of 6)."


def test_the_records_are_kept_beside_the_page(made_up: SimpleNamespace, report: Artifact) -> None:
    assert RunRecords.load(report.folder) == made_up.records()
    assert report.manifest.aligned_with == made_up.primary


@pytest.mark.parametrize(
    ("uri", "pages"),
    [("sqlite:////a/mlflow.db", "http://127.0.0.1:5000"), ("https://mlflow.example/", "https://mlflow.example")],
)
def test_runs_are_linked_to_the_pages_of_the_server_or_of_mlflow_ui(uri: str, pages: str) -> None:
    tracked = TrackedRun(uri=uri, experiment="3", run="e" * 32)
    assert tracked.link("f" * 32) == f"{pages}/#/experiments/3/runs/{'f' * 32}?workflowType=machine_learning"
