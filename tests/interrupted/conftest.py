import pytest

from tests.fixtures import once
from tests.interrupted.project import Project
from tests.workshop import Workshop


@pytest.fixture(scope="session")
def project(workshop: Workshop) -> Project:
    return Project(workshop, once.folder("interrupted", lambda folder: Project(workshop, folder).make()))
