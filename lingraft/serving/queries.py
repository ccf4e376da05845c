"""What an endpoint that answers a task is asked, and what it finds."""

from collections.abc import Mapping
from typing import NamedTuple


class Query(NamedTuple):
    """Texts by the names of the endpoint's inputs, and the language that they are in."""

    language: str
    texts: Mapping[str, str]


class Prediction(NamedTuple):
    """A label, a passage of the context, or an entity with its kind."""

    value: str
    probability: float


class QueryResult(NamedTuple):
    """What was found: one label or passage; entities, as many as there are."""

    query: Query
    predictions: tuple[Prediction, ...]
