import contextlib
import io
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft import console
from lingraft.console import say, with_progress
from lingraft.training.progress import training_progress
from lingraft.training.schedule import TrainingMetrics


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def new_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """No work has been shown before; the clock of a test may begin at 0."""
    for name in ("_said_at_s", "_worked_at_s"):
        monkeypatch.setattr(console, name, float("-inf"))


def points(steps: int, every: int = 20) -> Iterator[TrainingMetrics]:
    """Half a second and 1,000 tokens a step."""
    for step in range(every, steps + 1, every):
        yield TrainingMetrics(step, step * 1000, step * 1e6, step * 0.5, 5 - step / 100, 1e-3)


def show_all(shown: Iterator[TrainingMetrics], steps: int, title: str) -> None:
    with training_progress(steps, title) as show:
        for point in shown:
            show(point)


def test_a_log_gets_plain_lines_with_loss_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    show_all(points(100), 100, "adapt de over 2 layers")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "adapt de over 2 layers: step 20/100, loss 4.800, 2,000 tokens/s, 40 s left"
    assert lines[-1] == "adapt de over 2 layers: step 100/100, loss 4.000, 2,000 tokens/s, 0 s left"


def test_a_log_gets_a_line_at_most_every_five_seconds_and_the_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    show_all(points(2000), 2000, "pretrain")
    lines = capsys.readouterr().err.splitlines()
    assert 10 < len(lines) < 50
    assert "step 2000/2000" in lines[-1]


def test_a_terminal_gets_a_bar_with_loss_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    show_all(points(100), 100, "pretrain en")
    last = terminal.getvalue().rstrip().split("\r")[-1]
    assert re.search(r"pretrain en: 100%.*100/100 \[\d\d:\d\d<\d\d:\d\d, .*loss 4\.000, 2,000 tokens/s\]", last)


def test_what_is_said_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    say("precision fp32, as the recipe says")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "precision fp32, as the recipe says\n")


def test_counted_items_pass_through_and_a_log_gets_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    new_row(monkeypatch)
    assert list(with_progress("abcdef", "judge documents", "batch", 6)) == list("abcdef")
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(re.fullmatch(r"judge documents: batch \d/6, [\d.,]+ a second, \d+ s left", line) for line in lines)


def test_many_short_works_in_a_row_are_not_silent_for_longer_than_a_long_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock) / 2)
    new_row(monkeypatch)
    for seed in range(12):
        list(with_progress("abcdef", f"judge seed {seed}", "batch", 6))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert len({line.partition(":")[0] for line in lines}) == len(lines)


def test_a_short_work_after_a_pause_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 0.1, 0.2, 60.0, 60.1, 60.2])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    new_row(monkeypatch)
    assert list(with_progress("ab", "judge", "batch", 2)) + list(with_progress("cd", "judge", "batch", 2)) == [*"abcd"]
    assert capsys.readouterr().err == ""


def test_counted_items_are_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(with_progress("abc", "text de", "document")) == list("abc")
    assert "text de" in terminal.getvalue()


def test_a_log_that_cannot_be_written_does_not_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        say("nobody hears this")
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


def test_work_that_prints_nothing_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_LINE_EVERY_S", 0.5)
    with console.never_silent("train a tokenizer"):
        time.sleep(1.6)
    assert re.search(r"^train a tokenizer: \d+ s$", capsys.readouterr().err, re.MULTILINE)
