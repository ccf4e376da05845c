"""New versions of bundles, which hold the champion's languages and the new ones of a run."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlflow import MlflowClient

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import bundle_kinds, bundle_name, embeddings_of
from lingraft.bundle.format import bundle_languages
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.languages import quoted
from lingraft.errors import PromotionError, SupersededError
from lingraft.tracking.gate import refusal_reason
from lingraft.tracking.promotion import AllowedChanges, Verdict, embeddings_in, languages_of, promote
from lingraft.tracking.registry import register
from lingraft.tracking.runs import StageRun
from lingraft.tracking.versions import Version, download, version_by_alias, versions_of


@dataclass(frozen=True)
class NewBundle:
    """A bundle that was exported, registered, and checked by the gate."""

    made: Artifact
    verdict: Verdict

    @property
    def refused(self) -> str | None:
        """Reason why the version is not champion; None if it is."""
        return None if self.verdict.passed else refusal_reason(self.verdict.checks)


def renew_bundle(
    stage: StageRun,
    name: str,
    primary: str,
    brought: Mapping[str, Path],
    make: Callable[[Sequence[Path]], Artifact],
    tags: Mapping[str, object],
    allowed: AllowedChanges,
    asked_by: str,
) -> NewBundle:
    """Export a bundle of the champion's languages and new ones, register it, and promote it if it passes the gate.

    If the champion changes meanwhile, the bundle is exported again from the new champion, so that of two concurrent
    runs neither removes the other's languages from production.

    Args:
        brought: new embeddings by language, which replace the champion's of the same language.
        make: exports the bundle from folders of embeddings; called again if the champion has changed.
        tags: tags of the version, beside those that follow from the bundle.
        allowed: allowed changes to production. A language to drop is left out of the bundle, whether the champion has
            it or not; the source language stays.
    """
    while True:
        champion = version_by_alias(stage.client, name)
        with tempfile.TemporaryDirectory() as folder:
            dropped = allowed.drop_languages
            made = make(_select_embeddings(stage, champion, primary, brought, dropped, folder=Path(folder)))
        number = register(name, made.folder, Kind.BUNDLE, stage, tags)
        # One run renews several bundles, and a dropped language may never have been in this one.
        gone = {*languages_of(champion)} - {*bundle_languages(made.manifest)}
        changes = replace(allowed, drop_languages=tuple(each for each in dropped if each in gone))
        try:
            if version_by_alias(stage.client, name) == champion:
                return NewBundle(made, promote(stage.client, name, number, asked_by, allowed=changes))
        except SupersededError as error:
            say(str(error))
        say(f"The champion of {name!r} has changed meanwhile, so the bundle is made again.")


def require_droppable(
    client: MlflowClient, recipe: Recipe, languages: Sequence[str], drop_languages: Sequence[str]
) -> None:
    """Refuse to drop languages that no bundle in production has and the run does not name, such as misspelt ones."""
    if recipe.source.language in drop_languages:
        raise PromotionError(
            f"--drop-language names {recipe.source.language!r}, the source language, which every bundle has. Leave it "
            "out."
        )
    champions = [version_by_alias(client, bundle_name(recipe, each)) for each in bundle_kinds(recipe)]
    served = dict.fromkeys(language for champion in champions for language in languages_of(champion))
    if unknown := [each for each in drop_languages if each not in {*served, *languages}]:
        listed = [each for each in served if each != recipe.source.language]
        raise PromotionError(
            f"--drop-language names {quoted(unknown)}, but the bundles in production have "
            f"{quoted(listed) or 'no language besides the source'}, and the run names {quoted(languages)}. "
            "Correct the name, or leave it out."
        )


def _select_embeddings(
    stage: StageRun,
    champion: Version | None,
    primary: str,
    brought: Mapping[str, Path],
    dropped: Sequence[str],
    folder: Path,
) -> list[Path]:
    """Return the folders of all languages' embeddings: those in production in their order, then the new ones."""
    folders = {}
    served = embeddings_in(champion)
    for language in [*(each for each in languages_of(champion) if each in served), *brought]:
        if language in dropped or language in folders:
            continue
        if language in brought:
            folders[language] = brought[language]
        elif found := _registered(stage, language, primary, served[language]):
            folders[language] = download(found, Kind.EMBEDDINGS, folder / language).folder
            say(f"{language!r} is taken along from the champion.")
        else:
            say(f"The registry has no embeddings of {language!r} for primary {primary[:12]}: adapt them again.")
    return [*folders.values()]


def _registered(stage: StageRun, language: str, primary: str, served: str) -> Version | None:
    """Return a language's embeddings for a primary: the champion, else the version in the bundle."""
    found = versions_of(stage.client, embeddings_of(stage.project, language))
    fitting = [each for each in found if each.primary == primary and (each.is_champion or each.fingerprint == served)]
    return max(fitting, key=lambda each: each.is_champion, default=None)
