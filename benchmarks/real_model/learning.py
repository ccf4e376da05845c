"""Learning the vectors of pairs' English sides with the trainer and the loss of sentence-transformers (Reimers and
Gurevych 2020)."""

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lingraft.data.parallel_text import Pair

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_MAX_TOKENS = 128
"""Limit in the example of sentence-transformers."""


def processor_s() -> float:
    """Processors' seconds of this process, over its threads: the seconds of a machine that it has for itself."""
    return time.process_time() / torch.get_num_threads()


class Marks:
    """Seconds of learning after which a student is judged, whose time is left out."""

    def __init__(self, seconds: Sequence[int], judge: Callable[[], Any]) -> None:
        self.found: list[dict[str, Any]] = []
        self._seconds, self._judge = seconds, judge
        self._began_s = processor_s()

    def begin(self) -> None:
        """Count from now."""
        self._began_s = processor_s()

    def passed(self, updates: int) -> bool:
        """Judge if a mark has passed, and return whether it was the last."""
        now_s = processor_s()
        if now_s - self._began_s >= self._seconds[len(self.found)]:
            self.found.append({"learned_s": now_s - self._began_s, "updates": updates, "scores": self._judge()})
            self._began_s += processor_s() - now_s
        return len(self.found) == len(self._seconds)


def learn(
    student: "SentenceTransformer",
    teacher: "SentenceTransformer",
    pairs: Sequence[Pair],
    learning_rate: float,
    marks: Marks,
    *,
    both_sides: bool,
) -> None:
    """Learn a teacher's vectors, by AdamW with a learning rate that stays as it is after a warm-up, to the last mark.

    Args:
        both_sides: whether the student learns the vectors for the English sides, too, as a copy of the teacher must to
            keep them.
    """
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    english = [pair.source for pair in pairs]
    columns = {"translation": [pair.target for pair in pairs], "label": [*range(len(pairs))]}
    student.max_seq_length = teacher.max_seq_length = _MAX_TOKENS
    with tempfile.TemporaryDirectory() as folder:
        settings = SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=1_000_000,
            per_device_train_batch_size=64,
            learning_rate=learning_rate,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=20,
            batch_sampler=_by_length,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        SentenceTransformerTrainer(
            model=student,
            args=settings,
            train_dataset=Dataset.from_dict({"english": english, **columns} if both_sides else columns),
            loss=_loss(student, teacher, english),
            callbacks=[_callback(student, marks)],
        ).train()


def _by_length(texts: Any, batch_size: int, *, generator: torch.Generator, **_: Any) -> Any:
    """Batches of like length, in random order: with pairs of any length, most of a batch is padding."""
    batches = torch.tensor([*map(len, texts["translation"])]).argsort().split(batch_size)
    return [batches[number].tolist() for number in torch.randperm(len(batches), generator=generator)]


def _loss(student: "SentenceTransformer", teacher: "SentenceTransformer", english: Sequence[str]) -> nn.Module:
    from sentence_transformers.sentence_transformer.losses import MSELoss

    class Distillation(MSELoss):
        """Squared error to the teacher's vectors, which are computed with the batch; labels are numbers of pairs."""

        def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
            assert labels is not None
            known = teacher.encode([english[pair] for pair in labels.tolist()], batch_size=64, convert_to_tensor=True)
            return super().forward(sentence_features, known.clone())

    return Distillation(student)


def _callback(student: nn.Module, marks: Marks) -> Any:
    from transformers import TrainerCallback

    class Judging(TrainerCallback):  # type: ignore[misc]
        """Ends training at the last mark."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            marks.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = marks.passed(state.global_step)
            student.train()

    return Judging()
