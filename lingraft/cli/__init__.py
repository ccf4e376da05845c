"""`lingraft`: every stage as a command that works on folders, without Kubeflow and without a tracking server.

Begin with `init`, which writes a recipe for a folder of text. The order is then that of the data: text, tokenize,
blocks, pretrain, finetune (once, in the source language; `import` takes a primary from Hugging Face instead, `mini`
builds a mini-model of it, `vectors` what initialisation 'aligned' compares); then text, tokenize, blocks, initialise,
adapt, evaluate for each language, or `add-language` for all of that; export, serve and report at the end.
"""

import os
from collections.abc import Callable
from typing import Annotated

import typer

from lingraft import ranks
from lingraft._version import __version__
from lingraft.cli import handover, language, project, registry, source, verifying
from lingraft.cli.add_language import add_language
from lingraft.cli.options import run_app, with_registry_announced, with_start_announced
from lingraft.errors import TrainingError

app = typer.Typer(
    help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
export = typer.Typer(help=handover.EXPORT_HELP, no_args_is_help=True)


@app.callback()
def settings(
    context: typer.Context,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes of this machine that share each training, one a GPU; the result is alike."),
    ] = None,
) -> None:
    """Set the number of processes, and refuse several for a command that does not train."""
    if processes:
        os.environ[ranks.PROCESSES_VARIABLE] = str(processes)
    if ranks.world_size() > 1 and context.invoked_subcommand not in TRAINING:
        raise TrainingError(
            f"{ranks.world_size()} processes were started for `{context.invoked_subcommand}`, which is for one. Of "
            f"torchrun use {', '.join(sorted(TRAINING))}, or start one process with --processes {ranks.world_size()}."
        )


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


COMMANDS: dict[str, Callable[..., None]] = {
    "init": project.init,
    "import": source.import_primary,
    "text": source.text,
    "tokenize": source.tokenize,
    "blocks": source.build_blocks,
    "vectors": source.vectors,
    "pretrain": source.pretrain,
    "mini": source.mini,
    "finetune": source.finetune,
    "evaluate-source": source.evaluate_source,
    "initialise": language.initialise,
    "adapt": language.adapt,
    "search-depth": language.search_depth,
    "evaluate": language.evaluate,
    "add-language": add_language,
    "compare": project.compare,
    "report": handover.report,
    "verify": verifying.verify,
}
TRAINING = {"pretrain", "mini", "adapt", "finetune"}
SLOW_TO_START = TRAINING | {
    *("import", "blocks", "vectors", "initialise", "evaluate", "evaluate-source", "search-depth", "add-language"),
    "compare",
}
"""Commands that import PyTorch."""
for command, function in COMMANDS.items():
    app.command(command)(with_start_announced(command, function) if command in SLOW_TO_START else function)
app.command("serve", context_settings=handover.SERVE_CONTEXT, add_help_option=False)(handover.serve)
app.add_typer(export, name="export")
export.command("onnx")(with_start_announced("export onnx", handover.export_onnx))
export.command("add")(with_start_announced("export add", handover.export_add))
export.command("hf")(with_start_announced("export hf", handover.export_hf))
registered = typer.Typer(help=registry.HELP, no_args_is_help=True)
for asked in (registry.show, registry.pull, registry.promote):
    registered.command(asked.__name__)(with_registry_announced(asked))
registered.command("add")(with_start_announced("registry add", registry.add))
app.add_typer(registered, name="registry")


def main() -> None:
    """The program `lingraft`."""
    run_app(app)
