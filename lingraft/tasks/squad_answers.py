"""Answers by start and end logits: the n best passages of a context over all its windows.

Legend: B windows, T tokens of an input, L longest answer in tokens, N best spans of a window.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lingraft.tasks.squad_windows import QuestionWindows, trimmed

if TYPE_CHECKING:
    from torch import nn  # the endpoint answers without PyTorch, which takes seconds to import

N_BEST = 20
LONGEST_TOKENS = 30
"""BERT's settings for SQuAD (Devlin et al. 2019)."""
_EVALUATION_BATCH = 32


class Found(NamedTuple):
    """A passage that a model takes for the answer."""

    text: str
    """The passage as it stands in the context."""
    start: int
    """Offset of the first character in the context."""
    end: int
    """Offset behind the last character."""
    score: float
    """Start logit plus end logit."""


class Spans(NamedTuple):
    """Best spans of each window, best first; the score of a place that no span is left for is -infinity."""

    scores_BN: NDArray[np.float32]
    starts_BN: NDArray[np.int64]
    ends_BN: NDArray[np.int64]
    """Last token."""


def best_spans(
    logits_BT2: NDArray[np.float32], context_BT: NDArray[np.bool_], n_best: int, longest_tokens: int
) -> Spans:
    """Return the spans of highest start plus end logit that lie where `context_BT` is True and are not too long.

    The earliest of equal spans comes first, then the shortest.
    """
    start_BT, end_BT = np.moveaxis(np.where(context_BT[..., None], logits_BT2, np.float32(-np.inf)), -1, 0)
    end_BX = np.pad(end_BT, ((0, 0), (0, longest_tokens - 1)), constant_values=-np.inf)
    ahead_BTL = sliding_window_view(end_BX, longest_tokens, axis=1)
    scores_BX = (start_BT[..., None] + ahead_BTL).reshape(len(logits_BT2), -1)
    # A sort that is not stable would leave the order of equal values open.
    order_BN = np.argsort(-scores_BX, axis=1, kind="stable")[:, :n_best]
    starts_BN, further_BN = np.divmod(order_BN, longest_tokens)
    return Spans(np.take_along_axis(scores_BX, order_BN, 1), starts_BN, starts_BN + further_BN)


def best_answers(net: "nn.Module", data: QuestionWindows) -> list[list[Found]]:
    """Return the n best answers to each question, best first; the net is put into evaluation mode.

    A question has fewer where its context has fewer passages, and none where the tokenizer makes nothing of it.
    """
    return _best_by_question(data, _logits(net, data))


def answers_in(data: QuestionWindows, logits: Iterable[NDArray[np.float32]]) -> list[list[Found]]:
    """Return the n best answers to each question, best first, by the start and end logits (T, 2) of each window."""
    return _best_by_question(data, enumerate(logits))


def _logits(net: "nn.Module", data: QuestionWindows) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield each window's index with its logits (T, 2)."""
    import torch

    from lingraft.tasks.task_kind import by_length, outputs_of

    net.eval()
    for chosen in by_length(data, "judge questions", _EVALUATION_BATCH):
        batch = data.batch(chosen)
        with torch.inference_mode():
            logits_BT2 = outputs_of(net, batch.tokens_BT, batch.visible_BT, batch.types_BT).float().cpu()
        for index, logits_T2 in zip(chosen.tolist(), logits_BT2.numpy(), strict=True):
            yield index, logits_T2[: data.length(index)]


def _best_by_question(data: QuestionWindows, logits: Iterable[tuple[int, NDArray[np.float32]]]) -> list[list[Found]]:
    found: list[dict[tuple[int, int], Found]] = [{} for _ in data.questions]
    for index, logits_T2 in logits:
        places_T = np.arange(len(logits_T2))
        inside_T = (places_T >= data.context_place(index)) & (places_T < len(logits_T2) - 1)
        best = found[data.windows[index].question]
        for answer in _passages(data, index, best_spans(logits_T2[None], inside_T[None], N_BEST, LONGEST_TOKENS)):
            place = answer.start, answer.end
            # Windows overlap: of a passage seen twice the better score counts.
            if place not in best or best[place].score < answer.score:
                best[place] = answer
    return [
        sorted(best.values(), key=lambda answer: (-answer.score, answer.start, answer.end))[:N_BEST] for best in found
    ]


def _passages(data: QuestionWindows, index: int, spans: Spans) -> Iterator[Found]:
    """Yield the spans of a window as passages of the context, without blanks at their ends."""
    window = data.windows[index]
    context, passage = data.questions[window.question].context, data.passages[window.question]
    shift = window.first - data.context_place(index)
    for score, start, end in zip(*(values_BN[0].tolist() for values_BN in spans), strict=True):
        if score == -np.inf:
            break
        first, stop = int(passage.starts_P[start + shift]), int(passage.ends_P[end + shift])
        left, right = trimmed(context[first:stop])
        if left < right:
            yield Found(context[first + left : first + right], first + left, first + right, score)
