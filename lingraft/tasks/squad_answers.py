"""From start and end logits to answers: the n best passages of a context over all its windows.

Legend: B windows, T tokens of an input, L longest answer in tokens, N best spans of a window.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lingraft.tasks.squad_windows import WindowBatch, Windows, trimmed

if TYPE_CHECKING:
    import torch  # the endpoint answers without PyTorch, which takes seconds to import
    from torch import nn

N_BEST = 20
LONGEST_TOKENS = 30
"""BERT's settings for SQuAD (Devlin et al. 2019)."""
_EVALUATION_BATCH = 32


class Found(NamedTuple):
    """A passage that a model takes for the answer."""

    text: str
    """As it stands in the context."""
    start: int
    """First character of the context."""
    end: int
    """One behind the last."""
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
    """The spans of highest start plus end logit, of all that lie in the context and are not too long.

    Of equal spans the one that begins first comes first, then the shorter.

    Args:
        logits_BT2: start and end logits.
        context_BT: True where an answer may lie.
        n_best: spans of a window that are kept.
        longest_tokens: longest answer.
    """
    start_BT, end_BT = np.moveaxis(np.where(context_BT[..., None], logits_BT2, np.float32(-np.inf)), -1, 0)
    end_BX = np.pad(end_BT, ((0, 0), (0, longest_tokens - 1)), constant_values=-np.inf)
    ahead_BTL = sliding_window_view(end_BX, longest_tokens, axis=1)
    scores_BX = (start_BT[..., None] + ahead_BTL).reshape(len(logits_BT2), -1)
    # A sort that is not stable would leave the order of equal values open.
    order_BN = np.argsort(-scores_BX, axis=1, kind="stable")[:, :n_best]
    starts_BN, further_BN = np.divmod(order_BN, longest_tokens)
    return Spans(np.take_along_axis(scores_BX, order_BN, 1), starts_BN, starts_BN + further_BN)


def best_answers(
    net: "nn.Module", data: Windows, n_best: int = N_BEST, longest_tokens: int = LONGEST_TOKENS
) -> list[list[Found]]:
    """The n best answers to each question, best first; the net is put into evaluation mode.

    A question has fewer where its context has fewer passages, and none where the tokenizer makes nothing of it.
    """
    from lingraft.tasks.lengths import by_length

    net.eval()
    device = next(net.parameters()).device
    found: dict[int, dict[tuple[int, int], Found]] = defaultdict(dict)
    for chosen in by_length(data, "judge questions", _EVALUATION_BATCH):
        spans = _spans(net, data.batch(chosen), device, n_best, longest_tokens)
        for row, index in enumerate(chosen.tolist()):
            for answer in _texts(data, index, spans, row):
                _keep(found[data.windows[index].question], answer)
    return [_ranked(found[number])[:n_best] for number in range(len(data.questions))]


def answers_in(
    data: Windows, logits: Sequence[NDArray[np.float32]], n_best: int = N_BEST, longest_tokens: int = LONGEST_TOKENS
) -> list[list[Found]]:
    """The n best answers to each question, best first, from what a body has said of its windows.

    Args:
        data: questions in windows.
        logits: start and end logits (T, 2) of each window.
        n_best: answers of a question that are kept.
        longest_tokens: longest answer.
    """
    found: dict[int, dict[tuple[int, int], Found]] = defaultdict(dict)
    for index, logits_T2 in enumerate(logits):
        places_T = np.arange(len(logits_T2))
        inside_T = (places_T >= data.context_place(index)) & (places_T < len(logits_T2) - 1)
        spans = best_spans(logits_T2[None], inside_T[None], n_best, longest_tokens)
        for answer in _texts(data, index, spans, 0):
            _keep(found[data.windows[index].question], answer)
    return [_ranked(found[number])[:n_best] for number in range(len(data.questions))]


def _spans(net: "nn.Module", batch: WindowBatch, device: "torch.device", n_best: int, longest_tokens: int) -> Spans:
    import torch

    types_BT = None if batch.types_BT is None else batch.types_BT.to(device)
    with torch.inference_mode():
        logits_BT2 = net(batch.tokens_BT.to(device), batch.visible_BT.to(device), types_BT)
    return best_spans(logits_BT2.float().cpu().numpy(), batch.context_BT.numpy(), n_best, longest_tokens)


def _texts(data: Windows, index: int, spans: Spans, row: int) -> list[Found]:
    """Spans of a window as passages of the context, without blanks at their ends."""
    window = data.windows[index]
    context, passage = data.questions[window.question].context, data.passages[window.question]
    shift = window.first - data.context_place(index)
    found = []
    for score, start, end in zip(*(values_BN[row].tolist() for values_BN in spans), strict=True):
        if score == -np.inf:
            break
        first, stop = int(passage.starts_P[start + shift]), int(passage.ends_P[end + shift])
        left, right = trimmed(context[first:stop])
        if left < right:
            place = first + left, first + right
            found.append(Found(context[slice(*place)], *place, score))
    return found


def _keep(found: dict[tuple[int, int], Found], answer: Found) -> None:
    """Windows overlap: of the same passage seen twice the better score counts."""
    place = answer.start, answer.end
    if place not in found or found[place].score < answer.score:
        found[place] = answer


def _ranked(found: dict[tuple[int, int], Found]) -> list[Found]:
    return sorted(found.values(), key=lambda answer: (-answer.score, answer.start, answer.end))
