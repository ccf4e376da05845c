"""Queries to an endpoint, and their results."""

from collections.abc import Mapping
from typing import NamedTuple


class Query(NamedTuple):
    """Texts by name of the endpoint's input, and their language."""

    language: str
    texts: Mapping[str, str]


class Prediction(NamedTuple):
    """A label, a passage of the context, or an entity with its kind, and its probability."""

    value: str
    probability: float


class QueryResult(NamedTuple):
    """A query with its predictions: one label or passage, or any number of entities."""

    query: Query
    predictions: tuple[Prediction, ...]
