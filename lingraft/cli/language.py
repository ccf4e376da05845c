"""Commands for a target language."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import (
    BlocksOption,
    MiniOption,
    OutOption,
    PrimaryOption,
    RecipeOption,
    TasksOption,
    TextOption,
    TokenizerOption,
    say,
)
from lingraft.config import Recipe
from lingraft.plan import unwatched
from lingraft.training_config import SEARCH_STORAGE

# What a command needs is imported by it, so that --help does not wait for torch.


def adapt(
    recipe: RecipeOption,
    primary: PrimaryOption,
    blocks: BlocksOption,
    tokenizer: TokenizerOption,
    out: OutOption,
    depth: Annotated[
        int | None, typer.Option(help="Layers of the mini-model; the recipe's adaptation.depth if absent.")
    ] = None,
    mini: MiniOption = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder for the embeddings along the way, at the updates [adaptation] names.")
    ] = None,
) -> None:
    """Learn one language's embeddings over the bottom layers, body frozen (step 2)."""
    from lingraft import adaptation

    settings = Recipe.load(recipe)
    chosen = settings.adaptation.depth if depth is None else depth
    folders = primary, blocks, tokenizer
    say(adaptation.adapt(settings, *folders, chosen, out, unwatched, mini=mini, checkpoints=checkpoints))


def search_depth(
    recipe: RecipeOption,
    primary: PrimaryOption,
    blocks: BlocksOption,
    tokenizer: TokenizerOption,
    out: OutOption,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar=SEARCH_STORAGE, help="Optuna storage, such as sqlite:///optuna.db; a search goes on from there."
        ),
    ] = None,
) -> None:
    """Choose a language's mini-model depth by short adaptations at equal compute."""
    from lingraft.depth import search
    from lingraft.results import load_search

    say(search(Recipe.load(recipe), primary, blocks, tokenizer, storage, out, unwatched))
    print(f"depth {load_search(out).chosen}")


def evaluate(
    recipe: RecipeOption,
    primary: PrimaryOption,
    embeddings: Annotated[Path, typer.Option(help="Embeddings artifact, from `lingraft adapt`.")],
    text: TextOption,
    blocks: BlocksOption,
    out: OutOption,
    task: TasksOption = None,
    mini: MiniOption = None,
) -> None:
    """Swap a language's embeddings in, and judge masked and zero-shot accuracy on its test split (step 4)."""
    from lingraft import evaluation

    say(evaluation.evaluate_language(Recipe.load(recipe), primary, embeddings, task or [], text, blocks, out, mini))
    print((out / "result.json").read_text())
