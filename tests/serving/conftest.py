"""One bundle of each kind, and a server of all of them, for all tests of export and serving."""

from pathlib import Path

import pytest

from tests.serving import shared
from tests.serving.shared import SharedServer
from tests.tiny import Pieces, Tiny


@pytest.fixture(scope="session")
def pieces() -> Pieces:
    return Pieces.shared()


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return Tiny.shared()


@pytest.fixture(scope="session")
def bundle() -> Path:
    return shared.bundle()


@pytest.fixture(scope="session")
def bundles() -> list[Path]:
    return shared.bundles()


@pytest.fixture(scope="session")
def open_server() -> SharedServer:
    return shared.open_server()


@pytest.fixture(scope="session")
def locked_server() -> SharedServer:
    return shared.locked_server()
