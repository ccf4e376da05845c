"""The benchmark of serving: what its page says of what was measured, and all parts for real at a tiny shape."""

import asyncio
import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import RECORD_SUFFIX
from benchmarks.serving import __main__ as program
from benchmarks.serving import aims, page, words
from benchmarks.serving.load import load
from benchmarks.serving.memory import extrapolated
from benchmarks.serving.overhead import overheads
from benchmarks.serving.streams import best
from benchmarks.serving.turns import in_turns, medians, percentile

GIB = 2**30


def test_sides_take_turns_and_no_side_always_follows_the_same_one() -> None:
    order: list[str] = []
    found = in_turns({name: lambda name=name: order.append(name) for name in "abc"}, rounds=2)
    assert "".join(order) == "abc" + "abc" + "cba"
    assert all(len(each) == 2 and min(each) >= 0 for each in found.values())
    assert medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile([7.0], 0.95)) == (50.0, 95.0, 7.0)


def test_a_load_asks_everything_once_by_so_many_clients_at_a_time() -> None:
    asked: list[int] = []
    most = now = 0

    async def answer(one: int) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        asked.append(one)
        await asyncio.sleep(0.001)
        now -= 1

    found = asyncio.run(load(answer, range(20), 4))
    assert sorted(asked) == [*range(20)]
    assert most == 4
    assert found.texts_per_s > 0
    assert found.p95_ms >= found.p50_ms >= 1


def test_models_that_were_not_opened_are_extrapolated_by_a_straight_line() -> None:
    assert extrapolated([100, 300, 500], wanted=6) == pytest.approx(1300)
    assert extrapolated([100, 300, 510], wanted=2) == 510


def test_the_best_load_keeps_the_bound() -> None:
    def one(rate: float, p95_ms: float) -> dict[str, dict[str, float]]:
        return {"mixed": {"texts_per_s": rate, "p95_ms": p95_ms}}

    loads = {"1": one(10, 50), "4": one(20, 90), "16": one(30, 200)}
    assert best(loads, "mixed", 100) == 20
    assert best(loads, "mixed", 10) is None


FOUND: dict[str, Any] = {
    "memory": {
        "served": {"float32": 4 * GIB, "float16": 2 * GIB, "int8": GIB},
        "tables": {"float32": 3 * GIB, "float16": GIB, "int8": GIB // 2},
        "server": GIB // 4,
        "separate": [GIB // 8, GIB, 2 * GIB],
        "wanted": 30,
        "weights": 14 * GIB,
        "separate_bytes": 15.0 * GIB,
    },
    "overhead": {
        "rounds": 3,
        "served": {"16": {"bare": 5.0, "rest": 6.5, "grpc": 7.5}, "64": {"bare": 9.0, "rest": 10.0, "grpc": 11.0}},
        "small": {"16": {"bare": 0.1, "rest": 1.0, "grpc": 1.0}},
    },
}


def test_aims_are_met_missed_or_not_measured() -> None:
    found = {each.what: each for each in aims.aims(FOUND, bound_ms=100)}
    memory = [each for what, each in found.items() if what.startswith("memory of")]
    assert [(each.reached, each.met) for each in memory] == [("3.75x", False), ("7.50x", True)]
    served = [each for what, each in found.items() if what.startswith("server's p50")]
    assert [(each.reached, each.met) for each in served] == [("1.50 ms", True), ("2.50 ms", False)]
    assert overheads(FOUND["overhead"]["served"], "grpc") == [2.5, 2.0]
    assert {
        each.met for what, each in found.items() if what.startswith(("losses", "streams", "throughput on a GPU"))
    } == {None}


def test_the_page_says_what_was_not_run() -> None:
    found = {name: one | {"load_average": [1.0, 2.0]} for name, one in FOUND.items()}
    told = page.Told("python -m benchmarks.serving", "a plan", {"device": "a machine"}, "abc", 100, found)
    text = page.page(told)
    assert "**2 of 4 aims that were measured are met; " in text
    assert "## Latency\n\nNot run.\n" in text
    assert "| 30 separate sessions |  | 15.00 |  |  |" in text
    assert "2 were opened one after the other, and 30 extrapolated" in text
    assert page.plot(told).png().startswith(b"\x89PNG")
    assert page.plot(told._replace(found={})).png().startswith(b"\x89PNG")


def test_texts_are_as_long_as_asked_for(tmp_path: Path) -> None:
    pieces = words.train(120, tmp_path)
    lengths = [8, 16, 40]
    found = [len(pieces.encode(text)) + 2 for text in words.texts(pieces, lengths)]
    assert len(pieces) == 120
    assert all(length - 12 < size <= length for size, length in zip(found, lengths, strict=True))


def measured_twice(parts: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is found in parts at a tiny shape; a second run finds it measured."""
    given = ["--out", str(folder / "out"), "--page", str(folder / "page")]
    given += ["--languages", "2", "--vocabulary", "300", "--layers", "2", "--width", "32", "--block-tokens", "64"]
    given += ["--rounds", "2", "--texts", "8", "--stream-rounds", "1", "--additions", "1", "--separate-models", "2"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.serving", *given, "--parts", *parts])
    program.main()
    written = (folder / "page" / f"serving{RECORD_SUFFIX}").read_bytes()
    program.main()
    assert (folder / "page" / f"serving{RECORD_SUFFIX}").read_bytes() == written
    found: dict[str, Any] = json.loads(lzma.decompress(written))["found"]
    assert set(found) == set(parts)
    return found


@pytest.mark.integration
def test_parts_run_and_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_twice(["latency", "streams"], tmp_path, monkeypatch)


@pytest.mark.integration
@pytest.mark.nightly
def test_every_part_runs_and_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["memory", "latency", "streams", "pipelines", "adding", "overhead"]
    found = measured_twice(parts, tmp_path, monkeypatch)
    assert found["adding"]["memory"]["float16"]["table"] == 300 * 32 * 2
    assert len(found["memory"]["separate"]) == 3
