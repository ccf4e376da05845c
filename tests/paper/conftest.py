import pytest

from lingraft.artifact import Artifact
from lingraft.paper.report import write
from tests.paper.made_up import MadeUp


@pytest.fixture(scope="session")
def made_up() -> MadeUp:
    """Makers of records."""
    return MadeUp()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory, made_up: MadeUp) -> Artifact:
    """The report of a whole run."""
    return write(made_up.records(), tmp_path_factory.mktemp("paper") / "report")
