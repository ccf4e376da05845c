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
    plan = [PlannedStep("text"), PlannedStep("train", flops=1e9), PlannedStep("judge")]
    progress = TotalProgress(plan, clock)
    assert done(progress, clock, "text", 5).headline == "step 1 of 3: text"
    assert done(progress, clock, "train", 60).headline == "step 2 of 3: train"
    assert progress.start("judge", "judge de").headline == "step 3 of 3: judge de, about 10 s left"


def test_light_steps_take_as_long_as_those_before(clock: Clock) -> None:
    progress = TotalProgress([PlannedStep("a"), *3 * [PlannedStep("b")]], clock)
    done(progress, clock, "a", 20)
    assert progress.start("b", "b").headline == "step 2 of 4: b, about 60 s left"


def test_a_training_says_how_long_those_to_come_will_take_by_their_flops(clock: Clock) -> None:
    plan = [PlannedStep("pretrain", flops=6e12), *3 * [PlannedStep("adapt", flops=3e12)]]
    progress = TotalProgress(plan, clock)
    step = progress.start("pretrain", "pretrain")
    clock.now_s += 100
    assert progress.train(step, left_s=500, total_s=600) == f"about {format_duration(500 + 3 * 300)} left"
    clock.now_s += 500
    progress.end(step)
    assert progress.start("adapt", "adapt").headline == "step 2 of 4: adapt, about 15 min left"


def test_what_trains_for_a_time_that_nobody_knows_makes_the_estimate_a_lower_bound(clock: Clock) -> None:
    plan = [PlannedStep("pretrain", flops=6e12), *2 * [PlannedStep("finetune", flops=None)]]
    progress = TotalProgress(plan, clock)
    step = progress.start("pretrain", "pretrain")
    assert progress.train(step, left_s=240, total_s=600) == "at least 4 min left"
    clock.now_s += 240
    progress.end(step)
    finetuning = progress.start("finetune", "finetune")
    assert finetuning.headline == "step 2 of 3: finetune"
    clock.now_s += 60
    assert progress.train(finetuning, left_s=60, total_s=120) == "at least 60 s left"
    clock.now_s += 60
    progress.end(finetuning)
    assert progress.start("finetune", "finetune").headline == "step 3 of 3: finetune, about 2 min left"


def test_a_step_that_is_planned_like_others_takes_its_factor_of_them_until_its_own_kind_has_run(clock: Clock) -> None:
    judged = PlannedStep("judge language", flops=None, like=("judge source", 2.0))
    progress = TotalProgress([PlannedStep("text"), PlannedStep("judge source", flops=None), *3 * [judged]], clock)
    done(progress, clock, "text", 1)
    done(progress, clock, "judge source", 30)
    assert done(progress, clock, "judge language", 100).headline == "step 3 of 5: judge language, about 3 min left"
    assert progress.start("judge language", "it").headline == f"step 4 of 5: it, about {format_duration(2 * 100)} left"


def test_a_resumed_training_counts_as_a_whole_one_for_those_to_come(clock: Clock) -> None:
    progress = TotalProgress(2 * [PlannedStep("adapt", flops=1e12)], clock)
    step = progress.start("adapt", "adapt")
    clock.now_s += 10  # the rest of ten minutes, most of which an earlier run has done
    progress.train(step, left_s=10, total_s=600)
    progress.end(step)
    assert progress.start("adapt", "adapt").headline == "step 2 of 2: adapt, about 10 min left"


def test_what_was_there_already_says_nothing_of_the_time(clock: Clock) -> None:
    progress = TotalProgress(
        [PlannedStep("pretrain", flops=1e12), PlannedStep("adapt", flops=1e12), PlannedStep("text")], clock
    )
    done(progress, clock, "pretrain", 0.1, reused=True)
    assert progress.start("adapt", "adapt").headline == "step 2 of 3: adapt"


def test_steps_that_run_at_once_share_their_time(clock: Clock) -> None:
    progress = TotalProgress(6 * [PlannedStep("finetune", flops=None, at_once=2)], clock)
    for _ in range(2):
        two = [progress.start("finetune", "finetune") for _ in range(2)]
        clock.now_s += 300
        for step in two:
            progress.end(step)
    assert progress.start("finetune", "finetune").headline == "step 5 of 6: finetune, about 5 min left"
    clock.now_s += 120
    assert progress.start("finetune", "finetune").headline == "step 6 of 6: finetune, about 4 min left"


def test_the_last_of_an_odd_number_takes_as_long_alone_as_two_at_once(clock: Clock) -> None:
    progress = TotalProgress(3 * [PlannedStep("adapt", flops=None, at_once=2)], clock)
    two = [progress.start("adapt", "adapt") for _ in range(2)]
    clock.now_s += 300
    for step in two:
        progress.end(step)
    assert progress.left() == "about 5 min left"
    last = progress.start("adapt", "adapt")
    clock.now_s += 60
    assert progress.left() == "about 4 min left"
    assert "about 3 min" in progress.train(last, left_s=180, total_s=300)


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

    progress = TotalProgress([PlannedStep("embeddings", flops=None), PlannedStep("text")], clock)
    with progress.shown():
        done(progress, clock, "text", 200)
        progress.start("embeddings", "embeddings")
        train()
    train()
    first, *_, alone = capsys.readouterr().err.splitlines()
    assert first == "adapt: step 20/100, loss 4.800, 2,000 tokens/s, 40 s left; all steps: about 40 s left"
    assert "all steps" not in alone
