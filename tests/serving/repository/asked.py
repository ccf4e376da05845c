"""What versions of languages say, and a crowd of clients that a real server answers while versions change."""

import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from lingraft.serving.served_bundles import ServedBundles
from lingraft.tasks.pairs import encode
from tests.serving.answers import sentences
from tests.serving.asking import infer, inputs

TASK = "topic"
Answers = list[list[float]]
"""Probabilities by text."""


def texts(language: str) -> list[str]:
    return sentences(language)


def said(bundle: Path, language: str) -> Answers:
    opened = ServedBundles.load([bundle])[TASK]
    rows = encode([(text,) for text in texts(language)], opened.languages[language].tokenizer, opened.shape).rows
    (logits_NC,) = opened.body.run(*opened.gather([(language, row) for row in rows])).values()
    powers_NC = np.exp(logits_NC - logits_NC.max(1, keepdims=True))
    found: Answers = (powers_NC / powers_NC.sum(1, keepdims=True)).tolist()
    return found


def matches(answers: Answers, expected: Answers) -> bool:
    """Whether all texts of a request were answered by one version; versions differ by far more."""
    return bool(np.allclose(answers, expected, rtol=0, atol=1e-4))


@dataclass
class Crowd:
    url: str
    languages: tuple[str, ...]
    answers: list[tuple[str, Answers]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def asking(self, clients: int) -> Iterator["Crowd"]:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def seen(self, versions: Mapping[str, Mapping[str, Answers]]) -> tuple[dict[tuple[str, str], int], int]:
        """How often each version answered, by language and name, and how many answers are none's or more than one's."""
        found = {(language, name): 0 for language, named in versions.items() for name in named}
        mixed = 0
        for language, answers in self.answers:
            names = [name for name, expected in versions[language].items() if matches(answers, expected)]
            mixed += len(names) != 1
            for name in names:
                found[language, name] += 1
        return found, mixed

    def _ask(self, number: int) -> None:
        with httpx.Client(base_url=self.url, timeout=60, trust_env=False) as client:
            turn = number
            while not self._ended.is_set():
                language = self.languages[turn % len(self.languages)]
                turn += 1
                try:
                    self.answers.append((language, _answered(client, language)))
                except Exception:  # noqa: BLE001  the test says what it was
                    self.failures.append(traceback.format_exc())


def _answered(client: httpx.Client, language: str) -> Answers:
    response = client.post(infer(TASK), json=inputs([language], text=texts(language)))
    assert response.is_success, response.text
    outputs = {each["name"]: each for each in response.json()["outputs"]}["probabilities"]
    answers: Answers = np.reshape(outputs["data"], outputs["shape"]).tolist()
    return answers
