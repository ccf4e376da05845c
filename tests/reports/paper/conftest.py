import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.systems import System
from lingraft.reports.paper.records import PaperRecords
from lingraft.reports.paper.report import write
from tests.fixtures import once
from tests.reports.paper.made_up import MadeUp


@pytest.fixture(scope="session")
def made_up() -> MadeUp:
    """Makers of records."""
    return MadeUp()


@pytest.fixture(scope="session")
def report(made_up: MadeUp) -> Artifact:
    """The report of a whole run."""
    return _written("paper-report", made_up.records())


@pytest.fixture(scope="session")
def holed(made_up: MadeUp) -> Artifact:
    """A report of a run in which much is missing, and much was never reached."""
    records = made_up.records(
        made_up.failed(System.MINIPOST, 4, "de"),
        made_up.failed(System.BL_BASE, 12, "zh", "paws-x"),
        made_up.failed(System.MINIJOINT, 2, "tr"),
        made_up.cell(System.BL_BASE, 12, "ar", seed=2),
        without=[(System.MINIJOINT, 4, "ar", "xnli"), (System.BL_SMALL, 4, "zh", "xnli")],
    )
    return _written("paper-report-with-holes", records)


@pytest.fixture(scope="session")
def odd(made_up: MadeUp) -> Artifact:
    """A report of one task in one language, whose names and errors are markup."""
    markup = "<script>alert(1)</script> a | b"
    failed = made_up.failed(System.MINIPOST, 4, "de", why=markup)
    tasks = [made_up.task("xnli", ("de",), trivial="a | b")]
    return _written("paper-report-of-markup", made_up.records(failed, tasks=tasks, title=markup))


def _written(name: str, records: PaperRecords) -> Artifact:
    """The report of some records, written once a run of the tests."""
    return Artifact.load(once.folder(name, lambda folder: write(records, folder / "out")) / "out", Kind.REPORT)
