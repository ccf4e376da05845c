"""An answer of the soak: what came back, which version it is from, and whether that one could stand at the time.

Legend: V versions, N texts of a language, K texts of a request, C classes.
"""

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

LIKE = 1e-4
"""How near an answer must be to a version's: batches differ by some 1e-6, versions by more than ten times this."""


class Asked(NamedTuple):
    """A request's texts, each by its language and its number among that one's."""

    languages: list[str]
    numbers: list[int]


class Said(NamedTuple):
    """Parts of an answer that are checked."""

    languages: list[str]
    labels: list[str]
    probabilities_KC: NDArray[np.float32]


class Versions:
    """Answers of every version to every text, which tell the version that an answer is from."""

    def __init__(self, expected: Mapping[str, Mapping[str, NDArray[np.float32]]], labels: Sequence[str]) -> None:
        self._names = {language: list(said) for language, said in expected.items()}
        self._said_VNC = {language: np.stack([*said.values()]) for language, said in expected.items()}
        self._labels = labels

    def of(self, asked: Asked, said: Said) -> dict[str, list[str]]:
        """Return by language the versions that each said all of its texts; none where one text is nobody's answer."""
        if said.languages != asked.languages or said.probabilities_KC.shape != (len(asked.numbers), len(self._labels)):
            return {language: [] for language in asked.languages}
        best = [self._labels[number] for number in said.probabilities_KC.argmax(1)]
        found = {}
        for language in dict.fromkeys(asked.languages):
            mine = [place for place, spoken in enumerate(asked.languages) if spoken == language]
            numbers = [asked.numbers[place] for place in mine]
            apart_VKC = np.abs(self._said_VNC[language][:, numbers] - said.probabilities_KC[mine])
            told = all(said.labels[place] == best[place] for place in mine)
            like_V = (apart_VKC <= LIKE).all(axis=(1, 2)) & told
            found[language] = [name for name, like in zip(self._names[language], like_V, strict=True) if like]
        return found


@dataclasses.dataclass(frozen=True)
class Answer:
    """Outcome of a request; times are those of the machine's monotonic clock, in seconds."""

    by: str
    """`rest` or `grpc`."""
    due_s: float
    """When it was to be sent; latency counts from then, so that a request that waits for the generator counts too."""
    sent_s: float
    done_s: float
    failed: str | None
    """Status and reason, if it was not answered."""
    versions: dict[str, list[str]]

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read an answer from its line."""
        return cls(**json.loads(line))

    @property
    def line(self) -> str:
        """The answer as a line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def latency_s(self) -> float:
        """Seconds from when it was due to its last byte."""
        return self.done_s - self.due_s


class Stay(NamedTuple):
    """A version may be the one that answers from here to there."""

    version: str | None
    from_s: float
    until_s: float


class Timeline:
    """Which versions may stand at a time: a new one from when it was ordered, an old one until the new one stands."""

    def __init__(self, languages: Mapping[str, str]) -> None:
        """Begin with these versions by language."""
        self._stays: dict[str, list[Stay]] = defaultdict(list)
        for language, version in languages.items():
            self._stays[language].append(Stay(version, -math.inf, math.inf))

    def order(self, language: str, version: str | None, now_s: float) -> None:
        """A version, or none, was asked for."""
        self._stays[language].append(Stay(version, now_s, math.inf))

    def settle(self, language: str, now_s: float) -> None:
        """The server has said that it serves what was asked for last."""
        *before, last = self._stays[language]
        self._stays[language] = [*(each._replace(until_s=min(each.until_s, now_s)) for each in before), last]

    def standing(self, language: str, from_s: float, until_s: float) -> set[str | None]:
        """Versions that might answer at any moment between two."""
        stays = self._stays[language]
        return {each.version for each in stays if each.from_s <= until_s and each.until_s >= from_s}


def fault(answer: Answer, timeline: Timeline) -> str | None:
    """Return what is wrong with an answer; None where nothing is."""
    if answer.failed:
        return answer.failed
    for language, names in answer.versions.items():
        standing = timeline.standing(language, answer.sent_s, answer.done_s)
        if not names:
            return f"{language!r} is answered by no version, or by several at once, while {_shown(standing)} stood"
        if len(names) > 1:
            return f"{language!r} is answered by {names}, which cannot be told apart"
        if names[0] not in standing:
            return f"{language!r} is answered by version {names[0]}, while {_shown(standing)} stood"
    return None


def _shown(versions: set[str | None]) -> list[str]:
    return sorted(each or "none" for each in versions)
