"""Commands that change what a running endpoint serves."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.cli.options import announce_registry
from lingraft.cli.registry import ByOption, current_user
from lingraft.errors import PublicationError
from lingraft.retry import poll

if TYPE_CHECKING:
    from lingraft.serving.publishing.publications import Publication

# What a command needs is imported by it, so that --help does not wait for torch.

HELP = """Change what running endpoints serve, in seconds and without a restart: add, swap, roll back, take away.

Endpoints follow a folder (`lingraft serve --follow DIR`), by default that of LINGRAFT_PUBLICATIONS.
"""
FOLDER_VARIABLE = "LINGRAFT_PUBLICATIONS"
FolderOption = Annotated[
    Path, typer.Option("--to", envvar=FOLDER_VARIABLE, help="Folder of publications, which endpoints follow.")
]
TaskArgument = Annotated[str, typer.Argument(help="Task, as the endpoint names it.")]
LanguageArgument = Annotated[str, typer.Argument(help="Language tag.")]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0, help="Seconds to wait for the servers' answers; 0: do not wait.")
]


def bundle(
    bundle: Annotated[Path, typer.Argument(help="Bundle artifact with the body that the endpoint has.")],
    to: FolderOption,
    language: Annotated[
        list[str] | None,
        typer.Option(help="Language of the bundle, repeatable; all that differ from what is served if absent."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Name of the endpoint: the registered bundle is tagged endpoint.NAME.")
    ] = None,
    by: ByOption = None,
    wait: WaitOption = 30.0,
) -> None:
    """Publish languages of a bundle, and print what each server made of them; ends with 1 if one refuses."""
    from lingraft.serving.publishing.publish import publish

    registered = _registered(bundle) if endpoint else []
    made = publish(bundle, to, by or current_user(), language)
    if not made:
        print("nothing has changed")
    _conclude(to, made, wait)
    for model, number in registered:
        _tag(model, number, f"endpoint.{endpoint}", "; ".join(each.summary for each in made) or "nothing has changed")


def rollback(
    task: TaskArgument, language: LanguageArgument, to: FolderOption, by: ByOption = None, wait: WaitOption = 30.0
) -> None:
    """Undo the last publication of a language: endpoints serve the one before again."""
    from lingraft.serving.publishing.publish import rollback as take_back

    _conclude(to, [take_back(to, task, language, by or current_user())], wait)


def withdraw(
    task: TaskArgument, language: LanguageArgument, to: FolderOption, by: ByOption = None, wait: WaitOption = 30.0
) -> None:
    """Have endpoints stop serving a language."""
    from lingraft.serving.publishing.publish import withdraw as take_away

    _conclude(to, [take_away(to, task, language, by or current_user())], wait)


def ls(to: FolderOption) -> None:
    """List all publications, and what each server serves."""
    from lingraft.serving.publishing.publications import Publications

    if not to.is_dir():
        raise PublicationError(f"there is no folder {to.absolute()}. Give the one that endpoints follow with --to.")
    publications = Publications(to)
    published = [*publications.languages()]
    replicas = [*publications.replicas()]
    if not published:
        names = ", ".join(replica.name for replica, _ in replicas)
        servers = f"; servers that follow it: {names}" if names else ", and no server has followed it"
        print(f"nothing has been published in {to}{servers}")
    for task, language in published:
        for each in publications.history(task, language):
            print(each.summary)
    for replica, _ in replicas:
        for task, replies in replica.replies.items():
            for language, reply in replies.items():
                refused = "".join(f"; {number} refused: {reason}" for number, reason in reply.refused.items())
                print(
                    f"{replica.name}: {task} {language} serves {reply.version or 'nothing'} ({reply.number}){refused}"
                )


def champion(
    model: Annotated[str, typer.Argument(help="Registered bundle, such as demo-bundle-topic.")],
    to: FolderOption,
    started: Annotated[
        Path | None, typer.Option(help="Bundle that the servers are started with; nothing of it needs publishing.")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="Name of the endpoint, for the tag endpoint.NAME.")] = "lingraft",
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between polls of the registry.")] = 5.0,
    keep: Annotated[int, typer.Option(min=1, help="Publications of each language that are kept to roll back to.")] = 3,
    once: Annotated[
        bool,
        typer.Option("--once", help="Poll once, print each server's answer, and exit, with 1 if a server refuses."),
    ] = False,
    wait: WaitOption = 30.0,
) -> None:
    """Follow a registered bundle until stopped: whenever its champion is another one, publish that one's languages.

    A language that the champion does not have is withdrawn only if somebody dropped it by name, and is named before.
    """
    from lingraft.tracking.environment import require_store

    require_store()
    announce_registry()
    from lingraft.tracking import retrying_client
    from lingraft.tracking.promotion.champion import ChampionFollower, poll_once, require_bundle

    with retrying_client() as client:
        require_bundle(client, model)
        to.mkdir(parents=True, exist_ok=True)
        followed = ChampionFollower(client, model, to, endpoint=endpoint, started=started, keep=keep)
        if once:
            made = followed.poll()
            try:
                _await_results(to, made, wait)
            finally:
                followed.poll()  # for the tag, now that servers have answered
            return
        for _ in poll(every):
            poll_once(followed)


def _conclude(folder: Path, made: "Sequence[Publication]", wait_s: float) -> None:
    for each in made:
        print(each.summary)
    _await_results(folder, made, wait_s)


def _await_results(folder: Path, made: "Sequence[Publication]", wait_s: float) -> None:
    """Print what each server made of publications; end with an error if one has refused or none has answered."""
    from lingraft.serving.publishing.publish import require_served, silent_replicas, wait_for_results

    if wait_s and made:
        found = wait_for_results(folder, made, wait_s)
        for verdict in found:
            print(verdict.summary)
        for name in silent_replicas(folder, made, found):
            print(f"{name} has not answered within {wait_s:g} s: it may be gone, or slow")
        require_served(made, found)


def _registered(bundle: Path) -> list[tuple[str, int]]:
    """Versions of the registry that are this bundle."""
    from lingraft.artifacts.artifact import Artifact
    from lingraft.artifacts.manifest import Kind
    from lingraft.tracking import retrying_client
    from lingraft.tracking.versions import search_versions

    mark = Artifact.load(bundle, Kind.BUNDLE).fingerprint
    with retrying_client() as client:
        found = [(each.name, int(each.version)) for each in search_versions(client, f"tags.fingerprint = '{mark}'")]
    if not found:
        raise PublicationError(
            f"{bundle} ({mark[:12]}) is not registered at {os.environ.get('MLFLOW_TRACKING_URI')}, so that the "
            "registry cannot tell where it is served. Register it, or leave --endpoint out."
        )
    return found


def _tag(model: str, number: int, key: str, value: str) -> None:
    from lingraft.tracking import retrying_client
    from lingraft.tracking.versions import set_tags, version_of

    with retrying_client() as client:
        set_tags(client, version_of(client, model, number), {key: value})
