"""What an endpoint that answers a task is asked, and what it finds."""

from collections.abc import Mapping
from typing import NamedTuple


class Question(NamedTuple):
    """Texts by the names of the endpoint's inputs, and the language that they are in."""

    language: str
    texts: Mapping[str, str]


class Found(NamedTuple):
    """A label, a passage of the context, or an entity with its kind."""

    what: str
    probability: float


class Answer(NamedTuple):
    """What was found: one label or passage; entities, as many as there are."""

    question: Question
    found: tuple[Found, ...]
