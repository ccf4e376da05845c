import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from lingraft.artifact import Cost
from lingraft.errors import AlignmentError, ArtifactError
from lingraft.report import Records, table, write


def test_the_depths_searched_and_standard_are_marked(made_up: SimpleNamespace) -> None:
    rows = Records.of(made_up.source(), made_up.languages(), made_up.search()).rows
    assert [(row.language, row.layers) for row in rows] == [
        ("de", "2"),
        ("de", "6 standard"),
        ("tr", "2"),
        ("tr", "4 searched"),
        ("tr", "6 standard"),
        ("el", "2"),
        ("el", "6 standard"),
    ]


def test_the_table_s_rows_align_and_fit_the_terminal(made_up: SimpleNamespace) -> None:
    lines = table(made_up.source(made_up.task(0.715)), made_up.languages(), made_up.search()).splitlines()
    top = next(place for place, line in enumerate(lines) if line.startswith("language"))
    header, body = lines[top], [line for line in lines[top + 2 : top + 12] if not line.startswith("-")]
    assert len(body) == len(made_up.languages()) + 2
    assert {len(line) for line in body} == {len(header)}
    assert max(map(len, lines)) <= 140
    ends = [match.end() for match in re.finditer(r"before|after|majority|docs|seconds|TFLOP|all layers|ratio", header)]
    for line in body:
        assert all(line[end - 1] != " " and line[end : end + 1] in {" ", ""} for end in ends)


def test_means_are_over_languages_that_share_a_depth(made_up: SimpleNamespace) -> None:
    records = Records.of(made_up.source(), made_up.languages())
    assert [(row.language, row.layers, len(row.results)) for row in records.means] == [
        ("mean of 3", "2", 3),
        ("mean of 3", "6 standard", 3),
    ]
    expected = sum(row.masked.primary for row in made_up.languages() if row.depth == 2) / 3
    lines = table(made_up.source(), made_up.languages()).splitlines()
    assert [f" {expected:.1%} " in line for line in lines if re.match(r"mean of 3 +2 ", line)] == [True]


@pytest.mark.parametrize(("flops", "shown"), [(3.24e18, "3.2 EFLOP"), (7.5e9, "7.5 GFLOP"), (912.0, "912.0 FLOP")])
def test_compute_is_written_in_the_unit_that_fits(made_up: SimpleNamespace, flops: float, shown: str) -> None:
    cost = Cost(steps=1, tokens=1, flops=flops, elapsed_s=1.0)
    languages = [made_up.language("de", 2, cost=cost, whole_flops=2 * flops)]
    assert shown in table(made_up.source(pretraining=cost), languages)


def test_embeddings_evaluated_twice_give_one_row(made_up: SimpleNamespace) -> None:
    assert len(Records.of(made_up.source(), [made_up.language("de", 2), made_up.language("de", 2)]).rows) == 1


def test_two_different_embeddings_of_a_language_and_depth_are_refused(made_up: SimpleNamespace) -> None:
    with pytest.raises(ArtifactError, match=r"two evaluations at depth 2.*eee.*fff"):
        table(made_up.source(), [made_up.language("de", 2), made_up.language("de", 2, embeddings="f" * 64)])


def test_a_report_without_languages_is_refused(made_up: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="at least one language"):
        write(made_up.source(), [], None, tmp_path / "out")


def test_results_of_another_primary_are_refused(made_up: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(AlignmentError, match=f"{'b2' * 32}.*{made_up.primary}"):
        write(made_up.source(), [made_up.language("de", 2, primary="b2" * 32)], None, tmp_path / "out")
    with pytest.raises(AlignmentError, match="depth search"):
        table(made_up.source(primary="c3" * 32), [made_up.language("de", 2, primary="c3" * 32)], made_up.search())
