"""Reading objects into the models that KServe publishes, which drop what they do not know."""

import json
from types import SimpleNamespace
from typing import Any

import kserve.models
import pytest
from kubernetes import client

_UNPUBLISHED = type("V1beta1MetricQuantity", (), {"openapi_types": {}})
"""KServe's models name it, and do not have it: a quantity, such as "32", which is read as it stands."""


def round_trip(document: dict[str, Any]) -> Any:
    """An InferenceService, read and written again."""
    with pytest.MonkeyPatch.context() as patch:
        published = {name: model for name, model in vars(kserve.models).items() if isinstance(model, type)}
        for name, model in (published | {_UNPUBLISHED.__name__: _UNPUBLISHED}).items():
            if not hasattr(client.models, name):
                patch.setattr(client.models, name, model, raising=False)  # where the client looks models up
        api = client.ApiClient()
        read = api.deserialize(SimpleNamespace(data=json.dumps(document)), "V1beta1InferenceService")
        return api.sanitize_for_serialization(read)
