"""Once per language of any kind: the tracking run, text, tokenizer, blocks."""

from pathlib import Path

from lingraft import jobs, tracking
from lingraft.artifact import Kind
from lingraft.config import Recipe
from lingraft.files import write_text
from lingraft.steps.doing import do
from lingraft.steps.facts import language_of


def open_run(recipe: str, pipeline: str, out: Path) -> None:
    """Begin the tracking run of a pipeline; the file `out` names it to the other steps."""
    write_text(out, tracking.open_run(Recipe.parse(recipe), pipeline))


def prepare_text(recipe: str, run: Path, language: str, out: Path) -> None:
    """Read, split and write one language's text, which is read anew each time: it may have grown."""
    job = jobs.text(Recipe.parse(recipe), language, out)
    with tracking.stage(run.read_text(), job.name) as stage:
        stage.record(job.make(out, stage.watch), {})


def train_tokenizer(recipe: str, run: Path, text_folder: Path, out: Path) -> None:
    """Train one language's tokenizer."""
    language = language_of(text_folder, Kind.TEXT)
    do(jobs.tokenizer(Recipe.parse(recipe), language, text_folder, out), run)


def build_blocks(recipe: str, run: Path, text_folder: Path, tokenizer_folder: Path, out: Path) -> None:
    """Pack one language's text into blocks."""
    language = language_of(text_folder, Kind.TEXT)
    do(jobs.blocks(Recipe.parse(recipe), language, text_folder, tokenizer_folder, out), run)
