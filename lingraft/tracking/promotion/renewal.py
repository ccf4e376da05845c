"""Renew bundles: a new version holds the champion's languages and the new ones of a run."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import bundle_kinds, bundle_name
from lingraft.bundle.format import bundle_languages
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.languages import quoted
from lingraft.errors import PromotionError, SupersededError
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.bundle_gate import AllowedChanges, BundleContent, languages_in, served_content
from lingraft.tracking.promotion.decisions import Record, last_number, recorded_champion
from lingraft.tracking.promotion.gate import refusal_reason
from lingraft.tracking.promotion.promote import PromotionResult, promote, reconciled_history
from lingraft.tracking.registry import register
from lingraft.tracking.runs import StageRun
from lingraft.tracking.versions import Version, champion_of, download, versions, versions_of


@dataclass(frozen=True)
class Renewal:
    """A bundle that was exported, registered, and checked by the gate."""

    made: Artifact
    version: str
    decided: PromotionResult

    @property
    def refused(self) -> str | None:
        """Reason why the version is not champion; None if it is."""
        return None if self.decided.after == int(self.version) else refusal_reason(self.decided.checks)


def renew(
    stage: StageRun,
    name: str,
    primary: str,
    brought: Mapping[str, Path],
    make: Callable[[Sequence[Path]], Artifact],
    tags: Mapping[str, object],
    allowed: AllowedChanges,
    asked_by: str,
) -> Renewal:
    """Export a bundle of the champion's languages and new ones, register it, and promote it if it passes the gate.

    If the champion changes meanwhile, the bundle is exported again from the new champion, so that of two concurrent
    runs neither removes the other's languages from production.

    Args:
        brought: new embeddings by language, which replace the champion's of the same language.
        make: exports the bundle from folders of embeddings; called again if the champion has changed.
        tags: tags of the version, beside those that follow from the bundle.
        allowed: allowed changes to production. A language to drop is left out of the bundle, whether the champion has
            it or not; the source language stays.

    Raises:
        ArtifactError: registered embeddings are damaged.
    """
    while True:
        records = reconciled_history(stage.client, stage.project, name)
        knew = last_number(records)
        before = _in_production(stage.client, name, records)
        with tempfile.TemporaryDirectory() as folder:
            folders = _select_embeddings(
                stage,
                before=before,
                primary=primary,
                brought=brought,
                dropped=allowed.drop_languages,
                folder=Path(folder),
            )
            made = make(folders)
        version = register(name, made.folder, Kind.BUNDLE, stage, tags)
        # One run renews several bundles, and a dropped language may stay in this one, or never have been in it.
        served = languages_in(before)
        held = bundle_languages(made.manifest)
        dropped = tuple(language for language in allowed.drop_languages if language in served and language not in held)
        changes = allowed.model_copy(update={"drop_languages": dropped})
        try:
            decided = promote(stage.client, name, int(version), asked_by, allowed=changes, after_decision=knew)
        except SupersededError as error:
            say(f"{error} So it is made again.")
            continue
        return Renewal(made, version, decided)


def languages_in_production(client: RetryingClient, project: str, name: str) -> list[str]:
    """Return the languages of a bundle's champion, the source language first; none without a champion."""
    return languages_in(_in_production(client, name, decisions.history(client, project, name)))


def require_droppable(
    client: RetryingClient, recipe: Recipe, languages: Sequence[str], drop_languages: Sequence[str]
) -> None:
    """Refuse to drop languages that no bundle in production has and the run does not name, such as misspelt ones.

    Raises:
        PromotionError: a language cannot be dropped; the message lists those that can.
    """
    if recipe.source.language in drop_languages:
        raise PromotionError(
            f"--drop-language names {recipe.source.language!r}, the source language, which every bundle has. Leave it "
            "out."
        )
    names = [bundle_name(recipe, each) for each in bundle_kinds(recipe)]
    served = dict.fromkeys(each for name in names for each in languages_in_production(client, recipe.name, name))
    if unknown := [each for each in drop_languages if each not in {*served, *languages}]:
        listed = [each for each in served if each != recipe.source.language]
        raise PromotionError(
            f"--drop-language names {quoted(unknown)}, but the bundles in production have "
            f"{quoted(listed) or 'no language besides the source'}, and the run names {quoted(languages)}. "
            "Correct the name, or leave it out."
        )


def _in_production(client: RetryingClient, name: str, records: Sequence[Record]) -> list[BundleContent]:
    """Return the champion's content and, if somebody moved the alias by hand, that of the recorded champion."""
    found = [champion_of(client, name), recorded_champion(versions_of(client, name), records)]
    by_number = {version.number: version for version in found if version}
    contents = [served_content(client, version) for version in by_number.values()]
    return [content for content in contents if content]


def _select_embeddings(
    stage: StageRun,
    before: Sequence[BundleContent],
    primary: str,
    brought: Mapping[str, Path],
    dropped: Sequence[str],
    folder: Path,
) -> list[Path]:
    """Return the folders of all languages' embeddings: those in production in their order, then the new ones."""
    sources = {each.source for each in before}
    served = [language for language in languages_in(before) if language not in sources]
    wanted = [language for language in dict.fromkeys([*served, *brought]) if language not in dropped]
    absent = [language for language in wanted if language not in brought]
    found = dict(_find_embeddings(stage, before, primary, absent)) if absent else {}
    if found:
        say(f"Taken along from {' and '.join(each.title for each in before)}: {quoted(found)}.")
    if lost := [language for language in absent if language not in found]:
        say(f"The registry has no embeddings of {quoted(lost)} for primary {primary[:12]}: adapt them again.")
    for language, version in found.items():
        download(stage.client, version, Kind.EMBEDDINGS, folder / language)
    return [brought.get(language, folder / language) for language in wanted if language in {*brought, *found}]


def _find_embeddings(
    stage: StageRun, before: Sequence[BundleContent], primary: str, languages: Sequence[str]
) -> Iterator[tuple[str, Version]]:
    """Yield each language's embeddings for a primary: the champion, else the version in the bundle."""
    fitting = [
        each
        for each in versions(stage.client, stage.project)
        if each.kind == Kind.EMBEDDINGS and each.tags.get("aligned_with") == primary
    ]
    for language in languages:
        ours = [each for each in fitting if each.tags.get("language") == language]
        marks = {content.embeddings.get(language) for content in before}
        served = [each for each in ours if each.fingerprint in marks]
        if found := [*(each for each in ours if each.is_champion), *served]:
            yield language, found[0]
