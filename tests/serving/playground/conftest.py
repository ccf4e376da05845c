"""One browser a worker, and one server with a token, for all tests of the playground."""

from collections.abc import Iterator

import pytest

from tests.reports.run.browser import Page, new_page, running_chromium
from tests.serving.shared import TOKEN, SharedServer


@pytest.fixture(scope="session")
def server(locked_server: SharedServer) -> SharedServer:
    """All kinds of models, for those who have the token, with detection of languages."""
    return locked_server


@pytest.fixture(scope="package")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def locked(server: SharedServer, port: int) -> Iterator[Page]:
    with new_page(port) as page:
        page.visit(f"{server.url}/ui")
        page.wait("document.activeElement.id == 'token'")
        yield page


@pytest.fixture
def page(locked: Page) -> Page:
    locked.write(TOKEN)
    locked.press("Enter")
    locked.wait("document.activeElement.id == 'model'")
    return locked
