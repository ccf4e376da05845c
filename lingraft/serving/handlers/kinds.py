"""Handlers by kind of task, and those of a primary's bundle by the name that clients use."""

from lingraft.bundle.format import BundleKind
from lingraft.serving.handlers.classification import PAIR_CLASSIFICATION, TEXT_CLASSIFICATION
from lingraft.serving.handlers.fill_mask import FILL_MASK
from lingraft.serving.handlers.handler import TaskHandler
from lingraft.serving.handlers.question_answering import QUESTION_ANSWERING
from lingraft.serving.handlers.tagging import ENTITY_RECOGNITION
from lingraft.serving.handlers.text_vectors import RETRIEVAL, TEXT_EMBEDDING

TASK_HANDLERS: dict[BundleKind, TaskHandler] = {
    "documents": TEXT_CLASSIFICATION,
    "texts": TEXT_CLASSIFICATION,
    "pairs": PAIR_CLASSIFICATION,
    "questions": QUESTION_ANSWERING,
    "tags": ENTITY_RECOGNITION,
    "retrieval": RETRIEVAL,
}
PRIMARY_HANDLERS = {"fill-mask": FILL_MASK, "embeddings": TEXT_EMBEDDING}
