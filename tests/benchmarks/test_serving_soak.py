"""The soak of the endpoint: what it counts as wrong and as growth, and the whole of it for some seconds."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.pages import RECORD_SUFFIX, read_record
from benchmarks.serving import soak
from benchmarks.serving.soaking import page, verdict
from benchmarks.serving.soaking.answers import Answer, Asked, Said, Timeline, Versions, fault
from benchmarks.serving.soaking.changes import Done
from benchmarks.serving.soaking.growth import Moment, growth
from benchmarks.serving.soaking.made import LABELS, Size
from benchmarks.serving.soaking.watch import Sample

MB = 1e6
PLACES = {"as started": 300 * MB, "two more": 308 * MB, "one more": 304 * MB}
SAID = {
    "de": {
        "1": np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], np.float32),
        "2": np.array([[0.2, 0.7, 0.1], [0.1, 0.3, 0.6]], np.float32),
    },
    "en": {"1": np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]], np.float32)},
}
VERSIONS = Versions(SAID, LABELS)
ASKED = Asked(["de", "en", "de"], [0, 1, 1])


def measured(leak_per_s: float, cycles: int = 5) -> list[Moment]:
    """Memory that goes up and down with what is served, with some noise, and a leak."""
    noise, found = random.Random(1), []
    for number in range(cycles * len(PLACES)):
        place, level = [*PLACES.items()][number % len(PLACES)]
        found.append(Moment(place, 10.0 * number, level + leak_per_s * 10.0 * number + noise.gauss(0, 0.1 * MB)))
    return found


def test_growth_is_found_beneath_levels_that_differ_by_more_and_only_where_it_is() -> None:
    leak, none = growth(measured(leak_per_s=0.03 * MB)), growth(measured(leak_per_s=0.0))
    assert leak
    assert none
    assert leak.grown == pytest.approx(0.03 * MB * 140, abs=4 * leak.error)
    assert abs(none.grown) < 4 * none.error < 1 * MB
    assert none.level == pytest.approx(304 * MB, rel=0.01)
    assert verdict.problems(Counter(), {"rss_bytes": leak}, verdict.Bounds())
    assert verdict.problems(Counter(), {"rss_bytes": none, "pss_bytes": leak}, verdict.Bounds(), sockets_left=-1) == []
    assert "2 sockets are left" in verdict.problems(Counter(), {}, verdict.Bounds(), sockets_left=2)[0]
    assert growth(measured(leak_per_s=1 * MB, cycles=1)) is None  # moments that come once cannot be compared


def said(*versions: str) -> Said:
    """What is answered to `ASKED` if its texts go to these versions."""
    rows = [SAID[language][version][number] for language, number, version in zip(*ASKED, versions, strict=True)]
    return Said(ASKED.languages, [LABELS[row.argmax()] for row in rows], np.stack(rows))


def test_an_answer_is_of_the_version_that_said_all_of_a_language() -> None:
    assert VERSIONS.of(ASKED, said("2", "1", "2")) == {"de": ["2"], "en": ["1"]}
    assert VERSIONS.of(ASKED, said("1", "1", "2")) == {"de": [], "en": ["1"]}


@pytest.mark.parametrize(
    "wrong",
    [
        said("1", "1", "1")._replace(probabilities_KC=said("1", "1", "1").probabilities_KC + 0.001),
        said("1", "1", "1")._replace(labels=[LABELS[2]] * 3),
        said("1", "1", "1")._replace(languages=["de", "de", "en"]),
        said("1", "1", "1")._replace(probabilities_KC=np.full((3, 3), np.nan, np.float32)),
    ],
)
def test_a_wrong_answer_is_of_none(wrong: Said) -> None:
    assert VERSIONS.of(ASKED, wrong)["de"] == []


def answer(at_s: float, versions: dict[str, list[str]], failed: str | None = None) -> Answer:
    return Answer("rest", at_s, at_s, at_s + 0.5, failed, versions)


@pytest.fixture
def timeline() -> Timeline:
    """German is swapped from 10 s on, and the swap is done at 12 s; Turkish is there from 20 s to 31 s."""
    made = Timeline({"de": "1"})
    made.order("de", "2", 10.0)
    made.settle("de", 12.0)
    made.order("tr", "1", 20.0)
    made.settle("tr", 21.0)
    made.order("tr", None, 30.0)
    made.settle("tr", 31.0)
    return made


def test_either_version_may_answer_while_one_takes_the_place_of_the_other(timeline: Timeline) -> None:
    for at_s, version in ((9.0, "1"), (9.7, "2"), (11.0, "1"), (11.0, "2"), (12.0, "1")):
        assert fault(answer(at_s, {"de": [version]}), timeline) is None


@pytest.mark.parametrize(
    ("at_s", "versions"),
    [
        (9.0, {"de": ["2"]}),
        (12.1, {"de": ["1"]}),
        (11.0, {"de": []}),
        (19.0, {"tr": ["1"]}),
        (32.0, {"tr": ["1"]}),
    ],
)
def test_what_may_not_stand_is_counted(timeline: Timeline, at_s: float, versions: dict[str, list[str]]) -> None:
    answers = [answer(25.0, {"de": ["2"], "tr": ["1"]}), answer(at_s, versions), answer(at_s, {}, "429 too many")]
    faults = verdict.faults_of(answers, timeline)
    assert sum(faults.values()) == 2
    assert faults["429 too many"] == 1
    assert "2 answers were wrong, mixed or refused" in verdict.problems(faults, {}, verdict.Bounds())[0]


def test_moments_are_medians_between_changes_after_the_warm_up() -> None:
    done = [Done("a", 0.0, 1.0, False), Done("b", 10.0, 2.0, False), Done("c", 20.0, 1.0, True)]
    samples = [Sample(float(second), 0, second, 0, 0, 0, 0) for second in range(30)]
    found = verdict.moments(done, samples, "rss_bytes", from_s=5.0)
    assert found == [Moment("b", 12.0, 15.5), Moment("c", 21.0, 25.0)]


def test_a_bad_soak_ends_with_what_was_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_record(Path(__file__).parents[2] / "docs" / "benchmarks" / f"{page.NAME}{RECORD_SUFFIX}")
    with pytest.raises(SystemExit, match="7 answers were wrong"):
        soak.conclude(found | {"problems": ["7 answers were wrong"]}, None)
    assert "- 7 answers were wrong" in capsys.readouterr().out


@pytest.mark.integration
@pytest.mark.nightly
def test_a_soak_of_some_seconds(tmp_path: Path) -> None:
    size = Size(width=32, layers=1, rows=400)
    settings = soak.Settings(size, minutes=0.15, change_every_s=1.0, capacity_s=1.0, clients=4, share=0.5, at_once=48)
    (tmp_path / "work").mkdir()
    found = soak.found_in(soak.soaked(settings, tmp_path / "work"), settings, verdict.Bounds())
    assert found["problems"] == []
    assert found["changes"]
    assert min(found["answers"].values()) > 0
    soak.conclude(found, tmp_path)
    assert "bad versions offered" in (tmp_path / f"{page.NAME}.md").read_text()
