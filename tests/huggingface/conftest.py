"""A small random checkpoint of every model type, saved once a session; tests leave the folders as they are."""

import pytest

from tests.huggingface.checkpoints import MODEL_TYPES, Made, make_checkpoint


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Checkpoint by model type, as transformers saves it, with its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {model_type: make_checkpoint(folder / model_type, model_type) for model_type in MODEL_TYPES}
