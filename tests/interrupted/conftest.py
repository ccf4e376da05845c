import pytest

from tests.interrupted.project import Project, recipe
from tests.workshop import Workshop


@pytest.fixture(scope="session")
def project(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Every stage, run once without a stop."""
    folder = tmp_path_factory.mktemp("whole")
    made = Project(workshop, recipe(folder), folder)
    made.finish()
    return made
