"""Once per language of any kind: the tracking run, text, tokenizer, blocks."""

from pathlib import Path

from lingraft import text, tokenizer, tracking
from lingraft.artifact import Kind
from lingraft.config import Recipe
from lingraft.files import write_text
from lingraft.steps.facts import language_of


def open_run(recipe: str, pipeline: str, out: Path) -> None:
    """Begin the tracking run of a pipeline; the file `out` names it to the other steps."""
    write_text(out, tracking.open_run(Recipe.parse(recipe), pipeline))


def prepare_text(recipe: str, run: Path, language: str, out: Path) -> None:
    """Read, split and write one language's text."""
    with tracking.stage(run.read_text(), f"text-{language}") as stage:
        stage.record(text.prepare(Recipe.parse(recipe), language, out), {})


def train_tokenizer(recipe: str, run: Path, text_folder: Path, out: Path) -> None:
    """Train one language's tokenizer."""
    with tracking.stage(run.read_text(), f"tokenizer-{language_of(text_folder, Kind.TEXT)}") as stage:
        stage.record(tokenizer.train(Recipe.parse(recipe), text_folder, out), {})


def build_blocks(recipe: str, run: Path, text_folder: Path, tokenizer_folder: Path, out: Path) -> None:
    """Pack one language's text into blocks."""
    from lingraft import blocks

    with tracking.stage(run.read_text(), f"blocks-{language_of(text_folder, Kind.TEXT)}") as stage:
        stage.record(blocks.build(Recipe.parse(recipe), text_folder, tokenizer_folder, out), {})
