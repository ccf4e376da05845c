"""One server with a token and one browser for all tests of the playground."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lingraft.serving.ask import Running, running
from lingraft.serving.settings import TOKEN_VARIABLE
from tests.report.browser import Page, new_page, running_chromium
from tests.serving.playground.browsing import TOKEN


@pytest.fixture(scope="package")
def server(bundles: list[Path]) -> Iterator[Running]:
    """All kinds of models, for those who have the token, with detection of languages."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(TOKEN_VARIABLE, TOKEN)
            started = stack.enter_context(running(bundles, settings=()))
        yield started


@pytest.fixture(scope="package")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A browser's DevTools port."""
    with running_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def locked(server: Running, port: int) -> Iterator[Page]:
    """The page as it is before a person has given the token."""
    with new_page(port) as page:
        page.visit(f"{server.url}/ui")
        page.wait("document.activeElement.id == 'token'")
        yield page


@pytest.fixture
def page(locked: Page) -> Page:
    """The page with its models."""
    locked.write(TOKEN)
    locked.press("Enter")
    locked.wait("document.activeElement.id == 'task'")
    return locked
