"""Columns of retrieval: what is measured in some languages only, and the baselines beside it."""

from types import SimpleNamespace

from lingraft.reports.run.columns import baseline_summary, task_group
from lingraft.reports.run.records import RunRecords
from lingraft.stages.results import SeedScores


def test_baselines_and_scores_that_only_some_languages_have_are_columns(made_up: SimpleNamespace) -> None:
    def scores(share: float) -> SeedScores:
        return SeedScores(by_seed={1: share})

    plain = made_up.questions(0.6).model_copy(update={"name": "search", "metric": "accuracy_at_1"})
    german = plain.model_copy(
        update={
            "others": {**plain.others, "within_language_MRR_at_10": scores(0.7)},
            "baselines": {"BM25": scores(0.2), "within_language_source_tokenizer": scores(0.3)},
        }
    )
    languages = [made_up.language("de", 2, german), made_up.language("tr", 2, plain)]
    records = RunRecords.of(made_up.source(plain), languages)
    columns = {column.title: column for column in task_group(records, "search").columns}
    shown = {
        name: [columns[name].value(row) for row in languages]
        for name in ("BM25", "within language source tokenizer", "within language MRR at 10")
    }
    assert shown == {
        "BM25": [0.2, None],
        "within language source tokenizer": [0.3, None],
        "within language MRR at 10": [0.7, None],
    }
    assert columns["within language source tokenizer"].meaning == (
        "Accuracy at 1 among the language's own passages of the source's own embeddings, given the pieces of the "
        "source's own tokenizer."
    )


def test_passages_that_are_cut_are_told_where_there_are_some(made_up: SimpleNamespace) -> None:
    plain = made_up.questions(0.6).model_copy(update={"name": "search", "metric": "accuracy_at_1"})
    cut = plain.model_copy(update={"truncated_passages": 1200})
    for scores, shown in ((plain, None), (cut, 1200)):
        german = made_up.language("de", 2, scores)
        columns = task_group(RunRecords.of(made_up.source(scores), [german]), "search").columns
        found = {column.title: column.value(german) for column in columns}
        assert found.get("long passages") == shown
        assert baseline_summary(scores).endswith(
            " of them cut to fit a block" + (", and 1,200 passages" if shown else "")
        )
