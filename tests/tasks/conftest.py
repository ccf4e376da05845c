"""A tokenizer for all tests of tasks."""

import pytest

from lingraft.data.tokenizer.tokenizer import Tokenizer
from tests.tasks.little import own_tokenizer


@pytest.fixture(scope="session")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return own_tokenizer(tmp_path_factory.mktemp("tokenizer"))
