"""Options that several commands share, and how commands end."""

import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft import ranks
from lingraft.errors import LingraftError
from lingraft.signals import Interruption, interruptible

if TYPE_CHECKING:
    from lingraft.artifacts.artifact import Artifact
    from lingraft.config.recipe import Recipe

RecipeOption = Annotated[Path, typer.Option("--recipe", help="TOML recipe; the ones we ship are in recipes/.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the new artifact; must not hold anything yet.")]
LanguageOption = Annotated[str, typer.Option("--language", help="Language tag, one of the recipe's.")]
TextOption = Annotated[Path, typer.Option("--text", help="Text artifact, from `lingraft text`.")]
TokenizerOption = Annotated[
    Path, typer.Option("--tokenizer", help="From `lingraft tokenize`; or an imported primary, which has its own.")
]
BlocksOption = Annotated[
    Path,
    typer.Option(
        "--blocks", help="Blocks artifact, from `lingraft blocks`; a folder, or a URI such as s3://bucket/blocks."
    ),
]
PrimaryOption = Annotated[Path, typer.Option("--primary", help="From `lingraft pretrain` or `lingraft import`.")]
MiniOption = Annotated[
    Path | None, typer.Option("--mini", help="From `lingraft mini`, if the recipe's system is MINIPOST.")
]
SourceEvaluationOption = Annotated[
    Path | None,
    typer.Option(
        "--source-evaluation",
        help="From `lingraft evaluate-source`; without it, alignment with the source is not measured.",
    ),
]
InitialOption = Annotated[
    Path | None,
    typer.Option(
        "--initial",
        help="From `lingraft initialise`: embeddings at update 0. Absent: rows are drawn by the recipe's seed, which "
        "gives the same; initialisation 'aligned' needs it.",
    ),
]
VectorsOption = Annotated[
    Path | None,
    typer.Option(
        "--vectors",
        help="Static vectors of the source language, from `lingraft vectors`, for initialisation 'aligned'.",
    ),
]
TasksOption = Annotated[
    list[Path] | None, typer.Option("--task", help="Task artifact, from `lingraft finetune`; once a task and seed.")
]
EmbeddingsOption = Annotated[
    list[Path], typer.Option("--embeddings", help="Embeddings artifact, from `lingraft adapt`; once a language.")
]


def load_recipe(path: Path) -> "Recipe":
    """Load a recipe, with its model if it names one; `--help` does not wait for the module."""
    from lingraft.source_model import load_recipe

    return load_recipe(path)


def print_artifact(made: "Artifact") -> None:
    """Print kind, folder and fingerprint of a new artifact to stderr; of several processes, rank zero prints it."""
    if not ranks.is_rank_zero():
        return
    language = f" of {made.manifest.language!r}" if made.manifest.language else ""
    print(f"{made.manifest.kind}{language}: {made.folder} ({made.fingerprint[:12]})", file=sys.stderr)


def announce_registry() -> None:
    """Print the address of the registry."""
    from lingraft.artifacts.addresses import without_password
    from lingraft.tracking.environment import registry_address

    print(f"registry: {without_password(registry_address())}", file=sys.stderr, flush=True)


def with_registry_announced(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that prints the address of the registry first, and fails at once if there is none.

    MLflow takes seconds to import, and would create a missing store.
    """

    @functools.wraps(command)
    def announced(*arguments: object, **options: object) -> None:
        from lingraft.tracking.environment import require_reachable, require_store

        require_store()
        require_reachable()
        announce_registry()
        collects = gc.isenabled()
        gc.disable()  # it would look again and again at all that MLflow imports, which stays: a third of the time
        try:
            command(*arguments, **options)
        finally:
            if collects:
                gc.enable()

    return announced


def with_start_announced(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that prints at once that it starts, since PyTorch or MLflow take seconds to import."""

    @functools.wraps(command)
    def announced(*arguments: object, **options: object) -> None:
        if ranks.is_rank_zero():
            print(f"lingraft {name}: starting", file=sys.stderr, flush=True)
        command(*arguments, **options)

    return announced


def run_app(app: typer.Typer) -> None:
    """Run a command line; errors that the user can fix, and interruptions, end it with a message, not a traceback."""
    try:
        with interruptible():
            app()
    except LingraftError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except Interruption as interruption:
        if ranks.is_rank_zero():
            if error_before := _error_before(interruption):
                print(f"error: {error_before}", file=sys.stderr)
            print(f"stopped: {interruption}", file=sys.stderr)
        sys.exit(interruption.exit_code)


def _error_before(interruption: Interruption) -> LingraftError | None:
    """Error that was being handled when the process was asked to stop, and would not be printed otherwise."""
    before: BaseException | None = interruption
    while before and before.__cause__ is None:
        before = before.__context__
        if isinstance(before, LingraftError):
            return before
    return None
