"""Commands about what is registered: which versions there are, where they come from, and which one is served."""

import getpass
import platform
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.cli.options import RecipeOption, print_artifact
from lingraft.errors import NotRegisteredError, PromotionError

if TYPE_CHECKING:
    from lingraft.tracking import RetryingClient
    from lingraft.tracking.promotion.bundle_gate import AllowedChanges
    from lingraft.tracking.promotion.promote import PromotionResult
    from lingraft.tracking.versions import Version

# What a command needs is imported by it, so that --help does not wait for MLflow.

HELP = """Registered models and embeddings: list, verify, download, promote and roll back.

The registry is that of MLFLOW_TRACKING_URI, an address of a server or of a SQLite file (sqlite:///mlflow.db).
"""
ProjectOption = Annotated[
    str | None, typer.Option("--project", help="Name of the recipe; may be left out where the registry has one only.")
]
ModelArgument = Annotated[str, typer.Argument(help="Registered model, such as demo-embeddings-de.")]
VersionArgument = Annotated[int, typer.Argument(help="Its version, a number.")]
ChosenArgument = Annotated[int | None, typer.Argument(help="Its version, a number; the champion if absent.")]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Name for the record of who asks; this user on this machine if absent.")
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
DryOption = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and leave everything as it is.")]


def ls(project: ProjectOption = None) -> None:
    """List every version of a project, and mark those that are champions, and those that fit the primary no more."""
    from lingraft.artifacts.names import primary_of
    from lingraft.tracking import retrying_client
    from lingraft.tracking.versions import champion_of, versions

    with retrying_client() as client:
        chosen = chosen_project(client, project)
        primary = champion_of(client, primary_of(chosen))
        found = versions(client, chosen)
    for each in found:
        print("  ".join([f"{each.name:<40} {each.number:>4}", each.fingerprint[:12], *_marks(each, primary)]))


def _marks(version: "Version", primary: "Version | None") -> list[str]:
    fits = primary is None or version.kind == "primary" or version.tags.get("aligned_with") == primary.fingerprint
    return [*(f"@{alias}" for alias in version.aliases), *([] if fits else ["not aligned with the primary"])]


def show(model: ModelArgument, version: ChosenArgument = None) -> None:
    """Print a version's card, its tags, and what was decided about its model."""
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion.decisions import history, project_of

    with retrying_client() as client:
        found = _version(client, model, version)
        records = history(client, project_of(found), model)
    print(found.description)
    print("\n".join(["", "## Tags", "", *(f"{key}: {value}" for key, value in sorted(found.tags.items()))]))
    print("\n".join(["", "## Decisions", "", *(record.summary for record in records)]))


def lineage(project: ProjectOption = None) -> None:
    """Draw which artifacts were made of which, from primaries to endpoints, and print the decisions."""
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion import decisions
    from lingraft.tracking.promotion.lineage import lineage_tree
    from lingraft.tracking.versions import versions

    with retrying_client() as client:
        chosen = chosen_project(client, project)
        found = versions(client, chosen)
        records = decisions.history(client, chosen)
    print(lineage_tree(found))
    if records:
        print("\n".join(["", "decisions", *(f"{record.decision.model} {record.summary}" for record in records)]))


def verify(
    model: Annotated[str | None, typer.Argument(help="Registered model; every one of the project if absent.")] = None,
    version: ChosenArgument = None,
    project: ProjectOption = None,
) -> None:
    """Download versions, check every file's hash, and that tags, alignment and record are as they must be."""
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion.decisions import missing_numbers, project_of
    from lingraft.tracking.promotion.upkeep import find_damage, require_no_problems, unrecorded_champions
    from lingraft.tracking.versions import versions

    problems = []
    with retrying_client() as client:
        one = [_version(client, model, version)] if model else []
        chosen = project_of(one[0]) if one else chosen_project(client, project)
        found = versions(client, chosen)
        for each in one or found:
            problem = find_damage(client, each, found)
            print(f"{'DAMAGED' if problem else 'ok':<8} {each.title}")
            problems += [f"{each.title}: {problem}"] if problem else []
        problems += unrecorded_champions(client, chosen, [each for each in found if model in {None, each.name}])
        problems += [f"decision {number} of {chosen!r} was deleted" for number in missing_numbers(client, chosen)]
    require_no_problems(problems)


def pull(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(help="Folder of the artifact; must not hold anything yet.")],
    version: ChosenArgument = None,
) -> None:
    """Download a version's artifact to a folder, and verify it; a damaged one is refused."""
    from lingraft.artifacts.manifest import Kind
    from lingraft.tracking import retrying_client
    from lingraft.tracking.versions import download

    with retrying_client() as client:
        found = _version(client, model, version)
        print_artifact(download(client, found, Kind(str(found.kind)), out))


def promote(
    model: ModelArgument,
    version: VersionArgument,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe whose [gate] counts; that of the version's registration if absent.")
    ] = None,
    by: ByOption = None,
    dry_run: DryOption = False,
    drop_language: DropOption = None,
    new_primary: NewPrimaryOption = False,
    new_labels: NewLabelsOption = False,
) -> None:
    """Make a version champion if it passes the gate; the decision and its numbers are kept either way.

    A bundle must keep the champion's languages, primary and labels, but for what the last three options name. Ends
    with 1 if it is refused.
    """
    from lingraft.source_model import load_recipe
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion.gate import format_checks, refusal_reason
    from lingraft.tracking.promotion.promote import promote as decide

    gate = load_recipe(recipe).gate if recipe else None
    with retrying_client() as client:
        allowed = _allowed(drop_language, new_primary, new_labels)
        decided = decide(client, model, version, by or current_user(), gate=gate, dry_run=dry_run, allowed=allowed)
        print(format_checks(decided.checks))
        _conclude(client, decided, dry_run)
    if decided.after != version:
        raise PromotionError(f"version {version} of {model!r} is not promoted. {refusal_reason(decided.checks)}")


def judge(
    recipe: RecipeOption,
    model: ModelArgument,
    version: VersionArgument,
    evaluation: Annotated[Path, typer.Option(help="Evaluation of this version, from `lingraft evaluate`.")],
) -> None:
    """Compare a version by a new evaluation of it, as when text or tasks have changed since its own."""
    from lingraft import tracking
    from lingraft.source_model import load_recipe
    from lingraft.tracking.promotion.evidence import replace_evidence

    run = tracking.open_run(load_recipe(recipe), "judge")
    with tracking.stage(run, f"judge-{model}-{version}") as stage:
        replace_evidence(stage, _version(stage.client, model, version), evaluation)
        print(f"version {version} of {model!r} is compared by the evaluation that run {stage.run_id} keeps")
    tracking.close_run(run)


def rollback(
    model: ModelArgument,
    by: ByOption = None,
    dry_run: DryOption = False,
    drop_language: DropOption = None,
    new_primary: NewPrimaryOption = False,
    new_labels: NewLabelsOption = False,
) -> None:
    """Undo the last promotion: the champion before is champion again, or none if there was none.

    A bundle must keep the champion's languages, primary and labels, but for what the last three options name.
    """
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion.promote import rollback as decide

    allowed = _allowed(drop_language, new_primary, new_labels)
    with retrying_client() as client:
        _conclude(client, decide(client, model, by or current_user(), dry_run, allowed), dry_run)


def restore(
    model: ModelArgument,
    version: VersionArgument,
    folder: Annotated[
        Path, typer.Argument(help="Folder of the same artifact: a backup, or the output of the step that made it.")
    ],
) -> None:
    """Repair a damaged version from a folder with the same artifact; its number, aliases and decisions stay."""
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion.upkeep import restore as repair
    from lingraft.tracking.versions import version_of

    with retrying_client() as client:
        found = version_of(client, model, version)
        repair(client, found, folder)
    print(f"{found.title} is whole again")


def gc(
    project: ProjectOption = None,
    days: Annotated[float, typer.Option(min=0, help="Age in days below which a version is kept.")] = 30,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; otherwise they are only listed.")] = False,
) -> None:
    """List or delete versions that no alias, no rollback and nothing that is kept needs; never one under an alias."""
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion.upkeep import stale_versions
    from lingraft.tracking.versions import delete_version, versions

    with retrying_client() as client:
        chosen = chosen_project(client, project)
        unneeded = stale_versions(client, chosen, versions(client, chosen), time.time_ns() // 1_000_000, days)
        for each in unneeded:
            if yes:
                delete_version(client, each)
            print(f"{'deleted' if yes else 'would delete'} {each.title} [{each.fingerprint[:12]}]")
    if not unneeded:
        print("nothing to delete")


def _conclude(client: "RetryingClient", decided: "PromotionResult", dry_run: bool) -> None:
    """Print the result of a decision, and which languages and other champions a new primary leaves behind."""
    from lingraft.tracking.promotion.decisions import project_of
    from lingraft.tracking.promotion.promote import misaligned_champions
    from lingraft.tracking.versions import version_of

    would = "would be " if dry_run else ""
    before = decided.before or "none"
    after = decided.after or "none"
    print(f"champion of {decided.model!r}: {would}{after} (before: {before})")
    if decided.record:
        print(f"decision {decided.record.summary}")
    target = version_of(client, decided.model, decided.after) if decided.after else None
    if target and target.kind == "primary":
        left = misaligned_champions(client, project_of(target), target.fingerprint)
        stale = [each.tags["language"] for each in left if each.kind == "embeddings"]
        print(f"languages to adapt again: {', '.join(stale) or 'none'}")
        if left:
            print(f"champions of another primary: {', '.join(each.name for each in left)}")
            print("Make them again, or take them back with `lingraft registry rollback` where a version before fits.")


def _allowed(drop_language: list[str] | None, new_primary: bool, new_labels: bool) -> "AllowedChanges":
    from lingraft.tracking.promotion.bundle_gate import AllowedChanges

    return AllowedChanges(drop_languages=tuple(drop_language or ()), new_primary=new_primary, new_labels=new_labels)


def _version(client: "RetryingClient", model: str, number: int | None) -> "Version":
    from lingraft.tracking.versions import champion_of, version_of, versions_of

    if number is not None:
        return version_of(client, model, number)
    if not versions_of(client, model):
        raise NotRegisteredError(f"the registry has no model {model!r}. `lingraft registry ls` lists what it has.")
    found = champion_of(client, model)
    if found is None:
        raise PromotionError(f"{model!r} has no champion. Name a version; `lingraft registry ls` lists them.")
    return found


def chosen_project(client: "RetryingClient", given: str | None) -> str:
    """Name of the project that is meant: the one given, or the only one."""
    from lingraft.tracking.versions import projects

    known = projects(client)
    if not known:
        raise PromotionError("nothing is registered here yet. A pipeline or `lingraft registry add` registers models.")
    if given is None and len(known) == 1:
        return known[0]
    if given not in known:
        asked = f"no project {given!r}" if given else "not one project only"
        raise PromotionError(f"the registry has {asked}, but {known}. Name one of these with --project.")
    return given


def current_user() -> str:
    """Return the user and machine that a decision is recorded under where no requester is named."""
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

    if (folder / MANIFEST).is_file():
        return _add_artifact(folder, by or current_user(), project)
    from lingraft.bundle.format import bundle_languages
    from lingraft.config.gate import Gate
    from lingraft.source_model import load_recipe
    from lingraft.tracking.promotion.adding import add_language
    from lingraft.tracking.promotion.gate import format_checks, refusal_reason

    gate = load_recipe(recipe).gate if recipe else Gate()
    added = add_language(folder, by or current_user(), gate, project)
    model = added.decided.model
    refused = []
    print(format_checks(added.decided.checks))
    if added.decided.after == added.version:
        print(f"version {added.version} of {model!r} is champion")
    else:
        refused.append(f"version {added.version} of {model!r}: {refusal_reason(added.decided.checks)}")
    for name, renewal in added.renewals.items():
        if renewal.refused:
            refused.append(f"version {renewal.version} of {name!r}: {renewal.refused}")
        else:
            languages = ", ".join(bundle_languages(renewal.made.manifest))
            print(f"version {renewal.version} of {name!r} is champion: {languages}")
    for name, renewal in added.renewals.items():
        if not renewal.refused:
            word = shlex.quote(name)
            print(f"to serve it: lingraft registry pull {word} --out {word}, then lingraft serve {word}")
    if refused:
        raise PromotionError(f"registered, and not promoted: {' '.join(refused)}")


def _add_artifact(folder: Path, asked_by: str, project: str | None) -> None:
    from lingraft.tracking.promotion.adding import add_artifact

    added = add_artifact(folder, asked_by, project)
    print(f"version {added.version} of {added.model!r} is registered; version {added.champion} is champion")
    if added.champion != added.version:
        print(f"`lingraft registry promote {shlex.quote(added.model)} {added.version}` makes it champion")
