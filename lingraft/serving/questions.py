"""What an endpoint that classifies texts is asked, and answers."""

from typing import NamedTuple


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
