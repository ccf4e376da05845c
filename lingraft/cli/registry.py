"""Commands about what is registered: which versions there are, and which one is served."""

import getpass
import platform
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.cli.options import print_artifact
from lingraft.errors import PromotionError

if TYPE_CHECKING:
    from lingraft.tracking.versions import Version

# What a command needs is imported by it, so that --help does not wait for MLflow.

HELP = """Registered models and embeddings: list, download, promote, and add what commands have made.

The registry is that of MLFLOW_TRACKING_URI, an address of a server or of a SQLite file (sqlite:///mlflow.db).
"""
ModelArgument = Annotated[str, typer.Argument(help="Registered model, such as demo-embeddings-de.")]
ChosenArgument = Annotated[int | None, typer.Argument(help="Its version, a number; the champion if absent.")]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Name for the verdict of who asks; this user on this machine if absent.")
]
DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop-language", help="Language that a bundle may take out of production; repeatable."),
]
NewPrimaryOption = Annotated[
    bool, typer.Option("--new-primary", help="A bundle may be made for another primary than the champion.")
]
NewLabelsOption = Annotated[
    bool, typer.Option("--new-labels", help="A bundle may have another kind of task or other labels than the champion.")
]


def show(
    model: Annotated[
        str | None, typer.Argument(help="Registered model; all of the project are listed if absent.")
    ] = None,
    version: ChosenArgument = None,
    project: Annotated[
        str | None, typer.Option(help="Name of the recipe; may be left out where the registry has one only.")
    ] = None,
) -> None:
    """Print a version's card, tags and the gate's verdict; without MODEL, list every version with its aliases."""
    from lingraft.artifacts.names import primary_of
    from lingraft.tracking import connect, gate, promotion, versions

    client = connect()
    if model is None:
        chosen = chosen_project(project)
        primary = versions.version_by_alias(client, primary_of(chosen))
        for each in versions.versions(client, chosen):
            fits = primary is None or each.kind == "primary" or each.primary == primary.fingerprint
            marks = [*(f"@{alias}" for alias in each.aliases), *([] if fits else ["not aligned with the primary"])]
            print("  ".join([f"{each.name:<40} {each.number:>4}", each.fingerprint[:12], *marks]))
        return
    found = _version(model, version)
    tags = [f"{key}: {value}" for key, value in sorted(found.tags.items()) if key != promotion.VERDICT]
    print("\n".join([found.description, "", "## Tags", "", *tags]))
    if verdict := promotion.verdict_on(found):
        says = f"{'passed' if verdict.passed else 'refused'}, asked by {verdict.asked_by} at {verdict.asked_at}"
        print(
            f"\n## Verdict\n\n{says}; champion then: {verdict.before or 'none'}\n{gate.format_checks(verdict.checks)}"
        )


def pull(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(help="Folder of the artifact; must not hold anything yet.")],
    version: ChosenArgument = None,
) -> None:
    """Download a version's artifact to a folder, and verify it; a damaged one is refused."""
    from lingraft.artifacts.manifest import Kind
    from lingraft.tracking import versions

    found = _version(model, version)
    print_artifact(versions.download(found, Kind(found.kind), out))


def promote(
    model: ModelArgument,
    version: Annotated[int | None, typer.Argument(help="Its version, a number.")] = None,
    previous: Annotated[bool, typer.Option("--previous", help="Roll back: the previous champion, no VERSION.")] = False,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe whose [gate] counts; that of the version's registration if absent.")
    ] = None,
    champion_evaluation: Annotated[
        Path | None,
        typer.Option(help="Evaluation of the champion to compare with, from `lingraft evaluate`, if text has changed."),
    ] = None,
    by: ByOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")] = False,
    drop_language: DropOption = None,
    new_primary: NewPrimaryOption = False,
    new_labels: NewLabelsOption = False,
) -> None:
    """Make a version champion if it passes the gate, or roll back to the previous champion; the verdict is kept.

    A bundle must keep the champion's languages, primary and labels, but for what the last three options name. Ends
    with 1 if it is refused.
    """
    from lingraft.source_model import load_recipe
    from lingraft.tracking import connect, gate, promotion, versions

    if previous == (version is not None):
        raise PromotionError(
            f"give the version of {model!r} to promote, or --previous to roll back to the last champion."
        )
    client, user = connect(), by or current_user()
    allowed = promotion.AllowedChanges(tuple(drop_language or ()), new_primary, new_labels)
    if version is None:
        verdict = promotion.roll_back(client, model, user, allowed, dry_run)
    else:
        settings = load_recipe(recipe).gate if recipe else None
        verdict = promotion.promote(
            client,
            model,
            version,
            user,
            settings,
            allowed=allowed,
            dry_run=dry_run,
            champion_evaluation=champion_evaluation,
        )
    print(gate.format_checks(verdict.checks))
    title = f"version {verdict.version} of {model!r}"
    if not verdict.passed:
        raise PromotionError(f"{title} is not promoted. {gate.refusal_reason(verdict.checks)}")
    print(f"{title} {'would be' if dry_run else 'is'} champion (before: {verdict.before or 'none'})")
    target = versions.version_of(client, model, verdict.version)
    if target.kind == "primary" and (
        left := promotion.stale_champions(client, target.tags["project"], target.fingerprint)
    ):
        print(f"champions of another primary, to be made again: {', '.join(each.name for each in left)}")


def _version(model: str, number: int | None) -> "Version":
    from lingraft.tracking import connect, versions

    client = connect()
    return versions.require_alias(client, model) if number is None else versions.version_of(client, model, number)


def chosen_project(given: str | None) -> str:
    """Name of the project that is meant: the one given, or the only one."""
    from lingraft.tracking import connect, versions

    known = versions.projects(connect())
    if not known:
        raise PromotionError("nothing is registered here yet. A pipeline or `lingraft registry add` registers models.")
    if given is None and len(known) == 1:
        return known[0]
    if given not in known:
        asked = f"no project {given!r}" if given else "not one project only"
        raise PromotionError(f"the registry has {asked}, but {known}. Name one of these with --project.")
    return given


def current_user() -> str:
    """Return the user and machine that a verdict names where no requester is named."""
    return f"{getpass.getuser()}@{platform.node()}"


def add(
    folder: Annotated[
        Path, typer.Argument(help="What `lingraft add-language` left (its --out); or a primary, or a task.")
    ],
    project: Annotated[
        str | None, typer.Option(help="Name of the project; of a language or task, the one with its primary if absent.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe whose [gate] counts; the gate's defaults if absent.")
    ] = None,
    by: ByOption = None,
) -> None:
    """Register a language that was added, promote it if it passes the gate, and put it into the project's bundles.

    Its primary, and the tasks that it is to be served with, are added before. Ends with 1 if the embeddings or a bundle
    are refused.
    """
    from lingraft.artifacts.manifest import MANIFEST
    from lingraft.config.gate import Gate
    from lingraft.source_model import load_recipe
    from lingraft.tracking import adding, gate

    user = by or current_user()
    if (folder / MANIFEST).is_file():
        name, number, champion = adding.add_artifact(folder, user, project)
        print(f"version {number} of {name!r} is registered; version {champion} is champion")
        if champion != number:
            print(f"`lingraft registry promote {shlex.quote(name)} {number}` makes it champion")
        return
    verdict, bundles = adding.add_language(folder, user, load_recipe(recipe).gate if recipe else Gate(), project)
    print(gate.format_checks(verdict.checks))
    refused = []
    for each in (verdict, *(bundle.verdict for bundle in bundles.values())):
        title = f"version {each.version} of {each.model!r}"
        if each.passed:
            print(f"{title} is champion")
        else:
            refused.append(f"{title}: {gate.refusal_reason(each.checks)}")
    for name, bundle in bundles.items():
        if bundle.verdict.passed:
            print(f"to serve it: lingraft registry pull {shlex.quote(name)} --out DIR, then lingraft serve DIR")
    if refused:
        raise PromotionError(f"registered, and not promoted: {' '.join(refused)}")
