"""Inputs of an encoder from questions with their contexts; a long context is read through overlapping windows.

An input is a pair in the primary's own format: <s> question </s></s> context </s>, or for BERT's family
[CLS] question [SEP] context [SEP] in two segments. A window has room for as many pieces as the question leaves of the
longest input. Neighbouring windows share a quarter of the longest input (128 pieces of 512), at most half of the room.
A question gets at most half of the pieces that an input has beside its special ones.

Legend: B windows, T tokens of an input, P pieces of a context.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.config.encoder import EncoderShape
from lingraft.console import with_progress
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TextError
from lingraft.tasks.squad import Answer, Question

if TYPE_CHECKING:
    from torch import Tensor  # the endpoint cuts contexts without PyTorch, which takes seconds to import

_ENDS = 2
"""Special pieces beside the separators: one at the beginning, one at the end."""


def trimmed(text: str) -> tuple[int, int]:
    """Return the first visible character of a text, and one behind the last; (0, 0) where nothing is visible.

    White space belongs to the piece behind it, and so do characters that a tokenizer's normalisation takes for white
    space, such as zero-width spaces and marks of direction.
    """
    seen = [at for at, character in enumerate(text) if not is_blank(character)]
    return (seen[0], seen[-1] + 1) if seen else (0, 0)


def is_blank(character: str) -> bool:
    """Return whether a character is invisible: white space, marks of direction, and others of zero width."""
    return character.isspace() or unicodedata.category(character) == "Cf"


@dataclass(frozen=True)
class Passage:
    """A context in pieces, with the characters that each stands for."""

    ids_P: NDArray[np.int32]
    starts_P: NDArray[np.int32]
    ends_P: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids_P)

    def pieces_of(self, answer: Answer) -> tuple[int, int] | None:
        """Return the first and last piece of an answer; None where the tokenizer makes no piece of its characters."""
        first, stop = trimmed(answer.text)
        inside = (self.starts_P < answer.start + stop) & (self.ends_P > answer.start + first)
        places = np.flatnonzero(inside).tolist()
        return (places[0], places[-1]) if places else None


class Window(NamedTuple):
    """Pieces `first` to `stop` - 1 of a question's context."""

    question: int
    """Index of the question."""
    first: int
    stop: int
    answer_start: int
    """Place in the input of the first gold answer's first piece; 0, the beginning, where it is not all inside."""
    answer_end: int
    """Place of its last piece."""


class WindowBatch(NamedTuple):
    """Padded inputs."""

    tokens_BT: "Tensor"
    visible_BT: "Tensor"
    types_BT: "Tensor | None"
    """Segments; None where the family has fewer than two."""
    starts_B: "Tensor"
    ends_B: "Tensor"


@dataclass(frozen=True)
class QuestionWindows:
    """Tokenized questions; each has one window or more."""

    questions: Sequence[Question]
    asked: list[list[int]]
    """Pieces of each question, cut to half of an input."""
    passages: list[Passage]
    """Context of each question; equal contexts are one object."""
    windows: list[Window]
    special: SpecialIds
    separators: int
    marks_second_text: bool
    truncated: int
    """Questions of which only the beginning is seen. Contexts are always seen whole."""

    def __len__(self) -> int:
        return len(self.windows)

    def length(self, index: int) -> int:
        """Return the tokens of an input."""
        window = self.windows[index]
        return self.context_place(index) + window.stop - window.first + 1

    def context_place(self, index: int) -> int:
        """Return the place of the first context piece in an input."""
        return 1 + len(self.asked[self.windows[index].question]) + self.separators

    def targets(self, chosen: "Tensor") -> int:
        """Return the number of windows, as each has one span."""
        return len(chosen)

    def batch(self, chosen: "Tensor") -> WindowBatch:
        """Return inputs by their indices, padded to the longest."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        indices = chosen.tolist()
        rows = [torch.tensor(self.row(index)[0]) for index in indices]
        lengths_B = torch.tensor([len(row) for row in rows])
        begins_B = torch.tensor([self.context_place(index) for index in indices])
        tokens_BT = pad_sequence(rows, batch_first=True, padding_value=self.special.pad)
        places_1T = torch.arange(tokens_BT.shape[1])[None]
        visible_BT, behind_BT = places_1T < lengths_B[:, None], places_1T >= begins_B[:, None]
        return WindowBatch(
            tokens_BT=tokens_BT,
            visible_BT=visible_BT,
            types_BT=(behind_BT & visible_BT).long() if self.marks_second_text else None,
            starts_B=torch.tensor([self.windows[index].answer_start for index in indices]),
            ends_B=torch.tensor([self.windows[index].answer_end for index in indices]),
        )

    def row(self, index: int) -> tuple[list[int], list[int] | None]:
        """Return the ids of an input, and the segment of each; None where the family has fewer than two."""
        window, end = self.windows[index], self.special.end
        question = [self.special.begin, *self.asked[window.question], *[end] * self.separators]
        context = [*self.passages[window.question].ids_P[window.first : window.stop].tolist(), end]
        types = [0] * len(question) + [1] * len(context) if self.marks_second_text else None
        return question + context, types


def cut(questions: Sequence[Question], tokenizer: Tokenizer, shape: EncoderShape) -> QuestionWindows:
    """Tokenize questions and contexts for a body of this shape."""
    if not questions:
        raise TextError("there are no questions to tokenize. Bring at least one.")
    free = shape.block_tokens - _ENDS - shape.family.separators
    whole = tokenizer.encode_all([each.question for each in questions])
    asked = [ids[: free // 2] for ids in whole]
    passages: dict[str, Passage] = {}
    shown = with_progress(questions, "cut contexts", "question", len(questions))
    for each in shown if len(questions) > 1 else questions:  # an endpoint's single question is no long work
        if each.context not in passages:
            columns = tokenizer.encode_spans(each.context)
            passages[each.context] = Passage(*(np.array(column, np.int32) for column in columns))
    found: list[Window] = []
    for number, (each, ids) in enumerate(zip(questions, asked, strict=True)):
        room = free - len(ids)
        found += _windows(
            number=number,
            question=each,
            passage=passages[each.context],
            place=1 + len(ids) + shape.family.separators,
            room=room,
            shared=min(shape.block_tokens // 4, room // 2),
        )
    return QuestionWindows(
        questions=questions,
        asked=asked,
        passages=[passages[each.context] for each in questions],
        windows=found,
        special=tokenizer.special,
        separators=shape.family.separators,
        marks_second_text=shape.family.marks_second_text,
        truncated=sum(len(ids) < len(all_ids) for ids, all_ids in zip(asked, whole, strict=True)),
    )


def _windows(number: int, question: Question, passage: Passage, place: int, room: int, shared: int) -> Iterator[Window]:
    answer = passage.pieces_of(question.answers[0])
    for first, stop in _bounds(len(passage), room, shared):
        inside = answer is not None and first <= answer[0] and answer[1] < stop
        start, end = (place - first + piece for piece in answer) if answer and inside else (0, 0)
        yield Window(number, first, stop, start, end)


def _bounds(pieces: int, room: int, shared: int) -> Iterator[tuple[int, int]]:
    """Yield windows of `room` pieces, each of which begins `shared` pieces before the end of the one before it."""
    first, stop = 0, min(room, pieces)
    yield first, stop
    while stop < pieces:
        first = stop - shared
        stop = min(first + room, pieces)
        yield first, stop
