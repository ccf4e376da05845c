"""Total progress: which step of how many, and how long the rest takes as soon as that can be known."""

import pytest

from lingraft.console import PlannedStep, RunningStep, TotalProgress, format_duration
from lingraft.training.progress import training_progress
from lingraft.training.schedule import TrainingMetrics


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def done(progress: TotalProgress, clock: Clock, kind: str, seconds: float, reused: bool = False) -> RunningStep:
    step = progress.start(kind, kind)
    clock.now_s += seconds
    progress.end(step, reused)
    return step


def test_steps_are_counted_and_no_time_is_said_before_it_can_be_known(clock: Clock) -> None:
    progress = TotalProgress(map(PlannedStep, ("text", "train", "judge")), clock)
    assert done(progress, clock, "text", 5).headline == "step 1 of 3: text"
    assert done(progress, clock, "train", 60).headline == "step 2 of 3: train, about 10 s left"
    assert progress.start("judge", "judge de").headline == "step 3 of 3: judge de, about 30 s left"


def test_steps_take_the_mean_time_of_those_of_their_kind_and_trainings_their_own(clock: Clock) -> None:
    progress = TotalProgress([PlannedStep("text"), *3 * [PlannedStep("adapt")]], clock)
    done(progress, clock, "text", 20)
    done(progress, clock, "adapt", 300)
    step = progress.start("adapt", "adapt")
    assert step.headline == "step 3 of 4: adapt, about 10 min left"
    clock.now_s += 60
    assert progress.left() == "about 9 min left"
    assert progress.train(step, left_s=120) == "about 7 min left"


def test_a_result_that_was_there_is_no_estimate(clock: Clock) -> None:
    progress = TotalProgress(2 * [PlannedStep("pretrain")], clock)
    done(progress, clock, "pretrain", 0.1, reused=True)
    assert progress.start("pretrain", "pretrain").headline == "step 2 of 2: pretrain"


def test_steps_that_run_at_once_share_their_time(clock: Clock) -> None:
    progress = TotalProgress(6 * [PlannedStep("finetune", at_once=2)], clock)
    for _ in range(2):
        two = [progress.start("finetune", "finetune") for _ in range(2)]
        clock.now_s += 300
        for step in two:
            progress.end(step)
    assert progress.start("finetune", "finetune").headline == "step 5 of 6: finetune, about 5 min left"
    clock.now_s += 120
    assert progress.start("finetune", "finetune").headline == "step 6 of 6: finetune, about 4 min left"


def test_a_step_that_was_not_planned_makes_the_total_one_more(clock: Clock) -> None:
    progress = TotalProgress([PlannedStep("adapt")], clock)
    done(progress, clock, "adapt", 1)
    assert done(progress, clock, "adapt", 1).headline.startswith("step 2 of 2: adapt")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "10 s"), (14, "10 s"), (89, "90 s"), (91, "2 min"), (3540, "59 min"), (3660, "1 h"), (7800, "2 h 10 min")],
)
def test_durations_are_as_rough_as_they_are_known(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_lines_of_a_training_say_how_long_all_steps_take(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def train() -> None:
        with training_progress(100, "adapt") as show:
            for step in (20, 100):
                show(TrainingMetrics(step, step * 1000, step * 1e6, step * 0.5, 5 - step / 100, 1e-3))

    progress = TotalProgress([PlannedStep("embeddings"), PlannedStep("text")], clock)
    with progress.shown():
        done(progress, clock, "text", 200)
        progress.start("embeddings", "embeddings")
        train()
    train()
    first, *_, alone = capsys.readouterr().err.splitlines()
    assert first == "adapt: step 20/100, loss 4.800, 2,000 tokens/s, 40 s left; all steps: about 40 s left"
    assert "all steps" not in alone
