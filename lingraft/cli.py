"""`lingraft`: every stage as a command that works on folders, without Kubeflow and without a tracking server.

The order is that of the data: text, tokenize, blocks, pretrain, finetune (once, in the source language); then text,
tokenize, blocks, adapt, evaluate for each language; export, serve and report at the end.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft import __version__
from lingraft.config import Recipe
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.artifact import Artifact
    from lingraft.train import Progress

# Stages are imported by the commands that run them, so that --help does not wait for torch.

app = typer.Typer(
    help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)

RecipeOption = Annotated[Path, typer.Option("--recipe", help="TOML recipe; the ones we ship are in recipes/.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the new artifact; must not hold anything yet.")]
LanguageOption = Annotated[str, typer.Option("--language", help="Language tag, one of the recipe's.")]
TextOption = Annotated[Path, typer.Option("--text", help="Text artifact, from `lingraft text`.")]
TokenizerOption = Annotated[Path, typer.Option("--tokenizer", help="Tokenizer artifact, from `lingraft tokenize`.")]
BlocksOption = Annotated[Path, typer.Option("--blocks", help="Blocks artifact, from `lingraft blocks`.")]
PrimaryOption = Annotated[Path, typer.Option("--primary", help="Primary artifact, from `lingraft pretrain`.")]
TasksOption = Annotated[
    list[Path] | None, typer.Option("--task", help="Task artifact, from `lingraft finetune`; once a seed.")
]
EmbeddingsOption = Annotated[
    list[Path], typer.Option("--embeddings", help="Embeddings artifact, from `lingraft adapt`; once a language.")
]


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def text(
    recipe: RecipeOption,
    language: LanguageOption,
    out: OutOption,
    folder: Annotated[
        Path | None, typer.Option("--text", help="Text of your own, in place of the recipe's: one file or folder each.")
    ] = None,
) -> None:
    """Read one language's text and split it into train, dev and test."""
    from lingraft.text import prepare

    settings = Recipe.load(recipe)
    _say(prepare(settings.with_folder(folder) if folder else settings, language, out))


@app.command()
def tokenize(recipe: RecipeOption, text: TextOption, out: OutOption) -> None:
    """Train one language's SentencePiece tokenizer."""
    from lingraft.tokenizer import train

    _say(train(Recipe.load(recipe), text, out))


@app.command("blocks")
def build_blocks(recipe: RecipeOption, text: TextOption, tokenizer: TokenizerOption, out: OutOption) -> None:
    """Pack one language's text into fixed-length blocks of token ids."""
    from lingraft.blocks import build

    _say(build(Recipe.load(recipe), text, tokenizer, out))


@app.command()
def pretrain(recipe: RecipeOption, blocks: BlocksOption, tokenizer: TokenizerOption, out: OutOption) -> None:
    """Train the primary with all its MLM heads in the source language (step 1 of the paper)."""
    from lingraft import stages

    _say(stages.pretrain(Recipe.load(recipe), blocks, tokenizer, out, _unwatched))


@app.command()
def finetune(
    recipe: RecipeOption,
    primary: PrimaryOption,
    text: TextOption,
    out: OutOption,
    seed: Annotated[int, typer.Option(help="Seed of head and order; repeat with others for a mean.")] = 1,
) -> None:
    """Finetune the body on the recipe's task in the source language, token embeddings frozen (step 3)."""
    from lingraft import stages

    _say(stages.finetune(Recipe.load(recipe), primary, text, seed, out, _unwatched))


@app.command()
def adapt(
    recipe: RecipeOption,
    primary: PrimaryOption,
    blocks: BlocksOption,
    tokenizer: TokenizerOption,
    out: OutOption,
    depth: Annotated[
        int | None, typer.Option(help="Layers of the mini-model; the recipe's adaptation.depth if absent.")
    ] = None,
) -> None:
    """Learn one language's embeddings over the bottom layers, body frozen (step 2)."""
    from lingraft import stages

    settings = Recipe.load(recipe)
    chosen = settings.adaptation.depth if depth is None else depth
    _say(stages.adapt(settings, primary, blocks, tokenizer, chosen, out, _unwatched))


@app.command("search-depth")
def search_depth(
    recipe: RecipeOption,
    primary: PrimaryOption,
    blocks: BlocksOption,
    tokenizer: TokenizerOption,
    out: OutOption,
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage, such as sqlite:///optuna.db; a search goes on from there.")
    ] = None,
) -> None:
    """Choose a language's mini-model depth by short adaptations at equal compute."""
    from lingraft.depth import search
    from lingraft.results import load_search

    _say(search(Recipe.load(recipe), primary, blocks, tokenizer, storage, out))
    print(f"depth {load_search(out).chosen}")


@app.command("evaluate-source")
def evaluate_source(
    recipe: RecipeOption,
    primary: PrimaryOption,
    text: TextOption,
    blocks: BlocksOption,
    out: OutOption,
    task: TasksOption = None,
) -> None:
    """Judge the primary and its tasks on the source language's test split."""
    from lingraft import evaluation

    _say(evaluation.evaluate_source(Recipe.load(recipe), primary, task or [], text, blocks, out))
    print((out / "result.json").read_text())


@app.command()
def evaluate(
    recipe: RecipeOption,
    primary: PrimaryOption,
    embeddings: Annotated[Path, typer.Option(help="Embeddings artifact, from `lingraft adapt`.")],
    text: TextOption,
    blocks: BlocksOption,
    out: OutOption,
    task: TasksOption = None,
) -> None:
    """Swap a language's embeddings in, and judge masked and zero-shot accuracy on its test split (step 4)."""
    from lingraft import evaluation

    _say(evaluation.evaluate_language(Recipe.load(recipe), primary, embeddings, task or [], text, blocks, out))
    print((out / "result.json").read_text())


@app.command()
def export(
    primary: PrimaryOption,
    task: Annotated[Path, typer.Option(help="Task artifact, from `lingraft finetune`.")],
    embeddings: EmbeddingsOption,
    out: OutOption,
) -> None:
    """Export one task body with the tables of many languages to ONNX, and check parity with PyTorch."""
    from lingraft.export import bundle

    _say(bundle(primary, task, embeddings, out))


@app.command()
def serve(
    bundle: Annotated[Path, typer.Argument(help="Bundle artifact, from `lingraft export`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port of the Open Inference Protocol's REST interface.")] = 8080,
) -> None:
    """Serve a bundle: text and language in, label and probabilities out."""
    from lingraft.serving.server import serve as run

    run(bundle, host, port)


@app.command()
def report(
    source: Annotated[Path, typer.Option(help="From `lingraft evaluate-source`.")],
    evaluation: Annotated[list[Path], typer.Option(help="From `lingraft evaluate`; once a language and depth.")],
    out: OutOption,
    search: Annotated[Path | None, typer.Option(help="From `lingraft search-depth`.")] = None,
) -> None:
    """Write the report as one HTML page, and print its table."""
    from lingraft.report import table, write
    from lingraft.results import load_language, load_search, load_source

    judged, languages = load_source(source), [load_language(folder) for folder in evaluation]
    found = load_search(search) if search else None
    _say(write(judged, languages, found, out))
    print(table(judged, languages, found))


@app.command()
def verify(artifact: Annotated[Path, typer.Argument(help="Folder of any artifact.")]) -> None:
    """Check every file of an artifact against its manifest, and print what it is."""
    from lingraft.artifact import Artifact, read_manifest

    manifest = read_manifest(artifact)
    _say(Artifact.load(artifact, manifest.kind))
    print(manifest.model_dump_json(indent=2, exclude={"files"}))


def _say(made: "Artifact") -> None:
    language = f" of {made.manifest.language!r}" if made.manifest.language else ""
    print(f"{made.manifest.kind}{language}: {made.folder} ({made.fingerprint[:12]})", file=sys.stderr)


def _unwatched(point: "Progress") -> None:
    """The command line keeps no record beside the artifact's own history."""


def run_app(app: typer.Typer) -> None:
    """Run a command line, and end with a message instead of a traceback where the user can mend it."""
    try:
        app()
    except LingraftError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def main() -> None:
    """The program `lingraft`."""
    run_app(app)
