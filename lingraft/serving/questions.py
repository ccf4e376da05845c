"""What the endpoint is asked and answers, and the limits of a request."""

from typing import NamedTuple

MAX_TEXTS = 64
MAX_CHARACTERS = 20_000
MAX_BODY_BYTES = 8 * 2**20
"""Holds MAX_TEXTS texts of MAX_CHARACTERS characters, also where JSON escapes each one as six bytes."""


class Question(NamedTuple):
    """A text, and the language that it is in."""

    language: str
    text: str


class Answer(NamedTuple):
    """The most probable label of a text."""

    language: str
    text: str
    label: str
    probability: float
