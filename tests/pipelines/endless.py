"""A pipeline whose first step trains until it is stopped; `python -m tests.pipelines.endless` runs it as a command."""

from pathlib import Path

import typer
from kfp import dsl

from components.step import step
from lingraft.cli import run_app
from pipelines import local


@step
def training(recipe: str, blocks: str, tokenizer: str, made: str) -> None:
    from pathlib import Path

    from lingraft.config.recipe import Recipe
    from lingraft.stages.pretrain import pretrain

    def begun(_: object) -> None:
        Path(f"{made}.begun").touch()

    pretrain(Recipe.parse(recipe), Path(blocks), Path(tokenizer), Path(made), begun)


@step
def next_step(made: str) -> None:
    from pathlib import Path

    Path(f"{made}.next").touch()


@dsl.pipeline(name="trains")
def pipeline(recipe: str, blocks: str, tokenizer: str, made: str) -> None:
    next_step(made=made).after(training(recipe=recipe, blocks=blocks, tokenizer=tokenizer, made=made))


app = typer.Typer()


@app.command()
def run(folder: Path, recipe: Path, blocks: str, tokenizer: str) -> None:
    given = {"recipe": recipe.read_text(), "blocks": blocks, "tokenizer": tokenizer, "made": str(folder / "made")}
    local.run(pipeline, folder / "runs", **given)


if __name__ == "__main__":
    run_app(app)
