"""Follow the registry: publish the champion of a bundle, and tag it with what the servers report.

Each poll reads the champion's alias, one small request. Only if the alias has moved does it read the manifest of the
new version, and download the files that are missing here: those of the languages that have changed.
"""

import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from lingraft.artifacts.addresses import without_password
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.bundle.format import bundle_languages
from lingraft.bundle.language_part import language_files, language_version
from lingraft.console import say
from lingraft.errors import LingraftError, NotRegisteredError
from lingraft.serving.publishing.publications import Action, Publication, Publications
from lingraft.serving.publishing.publish import current_version, served_languages
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.environment import registry_address
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.decisions import Decision, dropped_languages
from lingraft.tracking.promotion.lineage import ENDPOINT
from lingraft.tracking.versions import (
    Version,
    delete_tag,
    download_files,
    search_versions,
    set_tags,
    version_by_alias,
)

_SHOWN = 3
"""Largest number of refusals in a tag."""


class ChampionFollower:
    """Publishes the champion of one registered bundle to one folder of publications."""

    def __init__(
        self, client: RetryingClient, model: str, folder: Path, endpoint: str, started: Path | None, keep: int
    ) -> None:
        """Create the follower; `poll` does the work.

        Args:
            started: bundle that the servers are started with, which needs no publication. If None, the servers' own
                reports decide.

        Raises:
            ArtifactError: `started` is not a bundle.
        """
        self._client = client
        self._model = model
        self._keep = keep
        self._publications = Publications(folder)
        self._tag = f"{ENDPOINT}{endpoint}"
        self._by = f"champion of {model}"
        manifest = Artifact.open(started, Kind.BUNDLE).manifest if started else None
        self._started_with = _language_versions(manifest) if manifest else {}
        self._task = manifest.detail("task", str) if manifest else None
        self._served: Version | None = None
        self._reported_status: str | None = None
        self._is_waiting = False
        self._kept_languages: set[str] = set()

    def poll(self) -> list[Publication]:
        """Publish the champion if it has changed, and tag it with the servers' reports.

        A language that the champion lacks is withdrawn if somebody dropped it by name, else it stays in service.

        Returns:
            What was published now.

        Raises:
            ArtifactError: the registered bundle is damaged, or the folder cannot be written.
        """
        champion = version_by_alias(self._client, self._model)
        if champion is None:
            if not self._is_waiting:
                say(f"{self._model!r} has no champion in the registry, so nothing is published before it has one.")
            self._is_waiting = True
            return []
        self._is_waiting = False
        made = []
        if self._served is None or champion.number != self._served.number:
            made = self._publish(champion)
            if self._served and self._served.number != champion.number:
                delete_tag(self._client, self._served, self._tag)
            self._served = champion
            self._reported_status = None
        status = self._status()
        if status != self._reported_status:
            set_tags(self._client, champion, {self._tag: status})
            self._reported_status = status
        return made

    def _publish(self, champion: Version) -> list[Publication]:
        made = []
        with tempfile.TemporaryDirectory() as folder:
            found = download_files(
                self._client, champion, Kind.BUNDLE, Path(folder) / "bundle", self._files_to_download
            )
            self._task = found.manifest.detail("task", str)
            wanted = _language_versions(found.manifest)
            leaving = self._languages_to_withdraw(champion, wanted)
            for language, version in wanted.items():
                if version != self._current_version(language):
                    made.append(self._publish_language(found, language, version, champion))
        made += [self._append(language, "withdraw", champion) for language in leaving]
        for language in wanted:
            self._publications.prune(str(self._task), language, self._keep)
        return made

    def _languages_to_withdraw(self, champion: Version, wanted: Collection[str]) -> list[str]:
        """Return the languages that the champion lacks and somebody dropped by name."""
        absent = sorted(self._current_languages() - set(wanted))
        records = decisions.history(self._client, champion.tags["project"], self._model) if absent else []
        dropped = dropped_languages(records)
        leaving = [name for name in absent if name in dropped and self._precedes(name, dropped[name])]
        for language in leaving:
            by = dropped[language]
            say(f"{language} of {self._task} will be withdrawn: {by.asked_by} dropped it by name at {by.asked_at}.")
        self._kept_languages = set(absent) - set(leaving)
        for language in sorted(self._kept_languages):
            say(
                f"{champion.title} has no {language!r}, but nobody has dropped it by name since it was published, so "
                f"it is served on. `lingraft publish withdraw {self._task} {language}` takes it away."
            )
        return leaving

    def _precedes(self, language: str, decision: Decision) -> bool:
        """Whether the current publication is older than a decision, or comes from this model."""
        last = self._publications.latest_publication(str(self._task), language)
        return last is None or last.by == self._by or last.at <= decision.asked_at

    def _publish_language(self, found: Artifact, language: str, version: str, champion: Version) -> Publication:
        if self._started_with.get(language) == version:
            return self._append(language, "restore", champion)
        if not self._is_stored(language, version):
            self._publications.store_version(found, language)
        return self._append(language, "serve", champion, version)

    def _append(self, language: str, action: Action, champion: Version, version: str | None = None) -> Publication:
        made = self._publications.append(str(self._task), language, action, self._by, version, origin=champion.title)
        say(made.summary)
        return made

    def _files_to_download(self, manifest: Manifest) -> Iterable[str]:
        """Yield the files of languages that have changed and whose new version is not in the folder yet."""
        self._task = manifest.detail("task", str)
        for language, version in _language_versions(manifest).items():
            is_here = self._started_with.get(language) == version or self._is_stored(language, version)
            if version != self._current_version(language) and not is_here:
                yield from language_files(manifest, language)

    def _is_stored(self, language: str, version: str) -> bool:
        return self._publications.version_path(str(self._task), language, version).is_dir()

    def _current_version(self, language: str) -> str | None:
        last = self._publications.latest_publication(str(self._task), language)
        if language in self._started_with and (last is None or last.action == "restore"):
            return self._started_with[language]
        return current_version(self._publications, str(self._task), language)

    def _current_languages(self) -> set[str]:
        original = {language for language in self._started_with if self._current_version(language)}
        return original | served_languages(self._publications).get(str(self._task), set())

    def _status(self) -> str:
        replicas = self._publications.live_replicas()
        languages = self._current_languages()
        refused: dict[str, str] = {}
        served = set(languages)
        for language in languages:
            for replica in replicas:
                reply = replica.status(str(self._task), language)
                if reply.version != self._current_version(language):
                    served.discard(language)
                    refused |= {language: reply.refused[reply.seen]} if reply.seen in reply.refused else {}
        if not replicas:
            return "published; no server has answered yet"
        parts = [f"{', '.join(sorted(served)) or 'nothing of it'} served"]
        parts += [f"{language} refused: {reason}" for language, reason in sorted(refused.items())[:_SHOWN]]
        if self._kept_languages:
            parts.append(f"{', '.join(sorted(self._kept_languages))} not in this version, and dropped by nobody")
        return "; ".join(parts + ([f"{len(refused) - _SHOWN} more refused"] if len(refused) > _SHOWN else []))


def require_bundle(client: RetryingClient, model: str) -> None:
    """Refuse the name of a bundle that is not registered, such as a mistyped one.

    Raises:
        NotRegisteredError: the message lists the bundles that are registered.
    """
    names = sorted({each.name for each in search_versions(client, f"tags.kind = '{Kind.BUNDLE}'")})
    if model not in names:
        there = f"It has {', '.join(names)}" if names else "It has none: the language pipeline registers bundles"
        raise NotRegisteredError(
            f"the registry at {without_password(registry_address())} has no bundle {model!r}. {there}."
        )


def poll_once(champion: ChampionFollower) -> None:
    """Poll once, and log an error instead of raising it: the registry may be down, or a version damaged."""
    try:
        champion.poll()
    except LingraftError as error:
        say(f"{error} What is served is served on.")


def _language_versions(manifest: Manifest) -> dict[str, str]:
    return {language: language_version(manifest, language) for language in bundle_languages(manifest)}
