"""Models of the Open Inference Protocol: one for a task's bundle; `fill-mask` and `embeddings` for a primary's."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lingraft.bundle.format import BundleKind, OutputSizes
from lingraft.config.tasks import PRIMARY
from lingraft.errors import ServingError
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.fill_mask import FILL_MASK, with_mask
from lingraft.serving.handlers.handler import LANGUAGE, TEXT, TaskHandler, TensorSpec, one_each
from lingraft.serving.handlers.question_answering import QUESTION_ANSWERING
from lingraft.serving.handlers.rows import PAIR_CLASSIFICATION, RETRIEVAL, TEXT_CLASSIFICATION, TEXT_EMBEDDING
from lingraft.serving.handlers.tagging import ENTITY_RECOGNITION
from lingraft.serving.languages import AUTO
from lingraft.serving.settings import ServingSettings

TASK_HANDLERS: dict[BundleKind, TaskHandler] = {
    "documents": TEXT_CLASSIFICATION,
    "texts": TEXT_CLASSIFICATION,
    "pairs": PAIR_CLASSIFICATION,
    "questions": QUESTION_ANSWERING,
    "tags": ENTITY_RECOGNITION,
    "retrieval": RETRIEVAL,
}
PRIMARY_HANDLERS = {"fill-mask": FILL_MASK, "embeddings": TEXT_EMBEDDING}
"""Handlers of a primary's bundle, by the name that clients use."""

_LANGUAGE_TENSORS = one_each(language="BYTES", language_confidence="FP32", unknown_share="FP32")
"""Language of each text, how sure that is (1 where the request named it), and the share of unknown characters."""


class ServedModel(NamedTuple):
    """A model of the protocol: its bundle, and the handler of its requests."""

    bundle: Bundle
    handler: TaskHandler

    @property
    def inputs(self) -> list[str]:
        """Names of all inputs of a request."""
        return [*self.handler.inputs, LANGUAGE]

    @property
    def outputs(self) -> list[TensorSpec]:
        """All output tensors of a response."""
        return [*self.handler.outputs(self.bundle.sizes), *_LANGUAGE_TENSORS]


def served_models(bundles: Mapping[str, Bundle]) -> dict[str, ServedModel]:
    """Return the models of bundles, by the name that clients use."""
    named = [
        (name, ServedModel(bundle, handler))
        for bundle in bundles.values()
        for name, handler in _handlers(bundle.name, bundle.kind).items()
    ]
    models = dict(named)
    if len(models) < len(named):
        raise ServingError(
            f"models are named {sorted(name for name, _ in named)}, and two alike. A primary's bundle makes "
            f"{' and '.join(map(repr, PRIMARY_HANDLERS))}: give only one, and rename the task."
        )
    return models


def _handlers(name: str, kind: BundleKind) -> dict[str, TaskHandler]:
    return PRIMARY_HANDLERS if kind == PRIMARY else {name: TASK_HANDLERS[kind]}


def interface(kind: BundleKind, sizes: OutputSizes) -> tuple[list[str], list[TensorSpec]]:
    """Return the names of the inputs and the output tensors of bundles of a kind, for the registry's signature."""
    handlers = _handlers("", kind).values()
    inputs = dict.fromkeys([*(name for handler in handlers for name in handler.inputs), LANGUAGE])
    tensors = [*(tensor for handler in handlers for tensor in handler.outputs(sizes)), *_LANGUAGE_TENSORS]
    return [*inputs], tensors


def metadata(model: ServedModel, settings: ServingSettings) -> dict[str, Any]:
    """Return what the protocol's metadata of a model has as `parameters`: its languages, labels and limits."""
    bundle = model.bundle
    return {
        "source_language": bundle.source_language,
        "examples": _examples(model),
        "languages": sorted(bundle.languages),
        "detects": AUTO if settings.detect else None,
        "labels": bundle.labels,
        "label_names": bundle.label_names,
        "fingerprint": bundle.fingerprint,
        "fingerprints": {tag: language.fingerprint for tag, language in sorted(bundle.languages.items())},
        "precision": bundle.precision,
        "unknown_limit": settings.unknown_limit,
        "max_tokens": bundle.shape.block_tokens,
        "request_parameters": {
            key: f"{type(each.default).__name__}, {each.default} if absent: {each.meaning}"
            for key, each in model.handler.parameters.items()
        },
    }


def _examples(model: ServedModel) -> dict[str, dict[str, str]]:
    """Return texts to try a model with, by language; a mask is added for fill-mask."""
    spoken = model.bundle.languages
    served = {language: texts for language, texts in model.bundle.examples.items() if language in spoken}
    if model.handler is not FILL_MASK:
        return served
    return {language: texts | {TEXT: with_mask(texts[TEXT])} for language, texts in served.items()}
