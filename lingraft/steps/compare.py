"""The comparison of systems as a pipeline's step."""

import os
import shutil
from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.cache import RESULTS_VARIABLE, shared_folder
from lingraft.artifacts.files import atomic_folder
from lingraft.jobs.launchable import Launchable, Output


class SystemComparison(Launchable, frozen=True):
    """Everything in the recipe's [paper]."""

    out: Output
    """The report: page and records."""
    page: Output
    """The page alone, as a file."""


def compare(given: SystemComparison, run: Path) -> None:
    """Run what is missing of the comparison, and close the pipeline's tracking run.

    Its results are kept among the shared ones (`LINGRAFT_RESULTS`), where the next attempt, or the next run of the same
    recipe, goes on.
    """
    from lingraft.comparison import runner
    from lingraft.comparison.page import HTML_FILE

    where = os.environ.get(RESULTS_VARIABLE, str(given.out.parent))
    with (
        tracking.stage(run.read_text(), "compare") as stage,
        shared_folder(where, f"comparison-{given.recipe.name}") as folder,
    ):
        made = runner.run(given.recipe, folder)
        stage.log_artifact(made, "report")
        with atomic_folder(given.out) as copy:
            shutil.copytree(made.folder, copy, dirs_exist_ok=True)
    shutil.copyfile(given.out / HTML_FILE, given.page)
    tracking.close_run(run.read_text())
