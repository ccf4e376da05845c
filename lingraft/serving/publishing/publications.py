"""The folder of publications: what endpoints are to serve, in the order in which it was decided, and their reports.

    tasks/<task>/<language>/versions/<version>/     a language's part of a bundle, complete or absent
    tasks/<task>/<language>/00000003/               publication 3: what is to be served from then on
    answers/<replica>.json                          what a server made of it

Publications are numbered, and never changed: the highest number counts. A number is a folder that is renamed into
place, so that of two publishers at once one is first, and one that is killed leaves nothing that anybody sees.
"""

import datetime
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pydantic

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import atomic_folder, write_json
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.language_part import language_version, write_language_part
from lingraft.config.section import Language, Name
from lingraft.errors import ArtifactError, PublicationError, SupersededError

Action = Literal["serve", "withdraw", "restore"]
"""Serve a version, no version, or what the server was started with."""
_RECORD = "publication.json"
_LOST_S = 30.0
"""A server is lost if another one has reported this much later."""
_NAMES = pydantic.TypeAdapter(tuple[Name, Language])


class Publication(pydantic.BaseModel, frozen=True, extra="forbid"):
    """A decision about one language of one task."""

    number: int
    task: Name
    language: Language
    action: Action
    version: str | None = pydantic.Field(None, pattern=r"^[0-9a-f]{16}$", description="Version to serve.")
    undoes: int | None = pydantic.Field(None, description="Number of the publication that this one takes back.")
    by: str
    at: str = pydantic.Field(description="UTC, ISO 8601.")
    origin: str = pydantic.Field("", description="Source of the version.")

    @property
    def summary(self) -> str:
        """Description in one line."""
        undone = f" (takes {self.undoes} back)" if self.undoes else ""
        version = f" {self.version}" if self.version else ""
        return f"{self.task} {self.language} {self.number}: {self.action}{version}{undone}, {self.at}, by {self.by}"


class LanguageStatus(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Report of a server about one language."""

    seen: int = pydantic.Field(0, description="Number of the newest publication that it has read.")
    number: int = pydantic.Field(0, description="Number of the publication that it serves by; 0: as it was started.")
    version: str | None = pydantic.Field(None, description="Version that it serves; none if absent.")
    refused: dict[int, str] = pydantic.Field({}, description="Reasons of the last refusals by number.")


class ReplicaStatus(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Report of a server."""

    name: str
    replies: dict[str, dict[str, LanguageStatus]] = pydantic.Field({}, description="By task and language.")

    def serves(self, task: str) -> set[str]:
        """Return the languages of a task that the server serves."""
        return {language for language, reply in self.replies.get(task, {}).items() if reply.version}

    def status(self, task: str, language: str) -> LanguageStatus:
        """Return the report about one language."""
        return self.replies.get(task, {}).get(language, LanguageStatus())


@dataclass(frozen=True)
class Publications:
    """A folder of publications, on a volume that publishers and servers share.

    All methods raise PublicationError for a name that is no task or language, and ArtifactError for a file that is
    damaged or cannot be written.
    """

    folder: Path

    def languages(self) -> Iterator[tuple[str, str]]:
        """Yield the tasks and languages with publications; folders that storage makes for itself are left out."""
        for task in _folder_names(self.folder / "tasks"):
            for language in _folder_names(self.folder / "tasks" / task):
                if _are_names(task, language):
                    yield task, language

    def latest_number(self, task: str, language: str) -> int:
        """Return the number of a language's last publication, 0 if there is none, without reading a file."""
        names = _folder_names(self._path(task, language))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def history(self, task: str, language: str) -> list[Publication]:
        """Return a language's publications by number."""
        return [self.read(task, language, number) for number in range(1, self.latest_number(task, language) + 1)]

    def read(self, task: str, language: str, number: int) -> Publication:
        """Return one publication."""
        path = self._record(task, language, number)
        try:
            return Publication.model_validate_json(path.read_bytes())
        except (pydantic.ValidationError, FileNotFoundError) as error:
            raise ArtifactError(f"{path} is damaged: {error}. Publish the language again.") from error

    def latest_publication(self, task: str, language: str) -> Publication | None:
        """Return a language's last publication; None if there is none."""
        number = self.latest_number(task, language)
        return self.read(task, language, number) if number else None

    def store_version(self, bundle: Artifact, language: str) -> str:
        """Copy a language's part of a bundle into the folder unless it is there, and return its version.

        Raises:
            PublicationError: the bundle does not have the language.
        """
        version = language_version(bundle.manifest, language)
        out = self.version_path(bundle.manifest.detail("task", str), language, version)
        if not out.is_dir():
            try:
                write_language_part(bundle, language, out)
                return version
            except ArtifactError:
                if not out.is_dir():
                    raise
        Artifact.load(out, Kind.LANGUAGE)  # perhaps another publisher's, of this moment
        return version

    def version_path(self, task: str, language: str, version: str) -> Path:
        """Return the folder of a version."""
        return self._path(task, language) / "versions" / version

    def append(
        self,
        task: str,
        language: str,
        action: Action,
        by: str,
        version: str | None = None,
        undoes: int | None = None,
        origin: str = "",
    ) -> Publication:
        """Write the next publication of a language.

        Raises:
            SupersededError: another publisher has written one for the same language at the same time, and was first.
        """
        publication = Publication(
            number=self.latest_number(task, language) + 1,
            task=task,
            language=language,
            action=action,
            version=version,
            undoes=undoes,
            by=by,
            at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            origin=origin,
        )
        path = self._record(task, language, publication.number)
        try:
            with atomic_folder(path.parent) as temporary:
                write_json(temporary / _RECORD, publication.model_dump(mode="json"))
        except ArtifactError as error:
            if not path.parent.is_dir():
                raise
            raise SupersededError(
                f"somebody else has published {language!r} of {task!r} at the same time (number {publication.number}). "
                "Look at it with `lingraft publish ls`, and publish again."
            ) from error
        return publication

    def written_at_s(self, publication: Publication) -> float:
        """Return the time of a publication in seconds since 1970, by the file system's clock."""
        return self._record(publication.task, publication.language, publication.number).stat().st_mtime

    def write_status(self, replica: ReplicaStatus) -> None:
        """Write a server's report."""
        write_json(self._status_file(replica.name), replica.model_dump(mode="json"))

    def touch(self, name: str) -> None:
        """Show that a server is alive and its report holds."""
        os.utime(self._status_file(name))

    def remove_status(self, name: str) -> None:
        """Remove the report of a server that stops."""
        self._status_file(name).unlink(missing_ok=True)

    def replicas(self) -> Iterator[tuple[ReplicaStatus, float]]:
        """Yield the servers' reports, with the time of each in seconds since 1970, by the file system's clock."""
        for path in sorted((self.folder / "answers").glob("[!.]*.json")):
            try:
                reported_s = path.stat().st_mtime
                yield ReplicaStatus.model_validate_json(path.read_bytes()), reported_s
            except FileNotFoundError:  # it has just stopped
                continue

    def live_replicas(self) -> list[ReplicaStatus]:
        """Return the reports of servers that are not lost."""
        reports = [*self.replicas()]
        newest_s = max((reported_s for _, reported_s in reports), default=0.0)
        return [replica for replica, reported_s in reports if reported_s > newest_s - _LOST_S]

    def prune(self, task: str, language: str, keep: int) -> list[str]:
        """Remove and return the versions that neither the last `keep` publications nor a server's report names."""
        history = self.history(task, language)
        needed = {each.version for each in history[-keep:]}
        needed |= {replica.status(task, language).version for replica, _ in self.replicas()}
        versions = self._path(task, language) / "versions"
        unneeded = [version for version in _folder_names(versions) if version not in needed]
        for version in unneeded:
            (versions / version).rename(versions / f".{version}")  # out of sight first: a part is complete or absent
            shutil.rmtree(versions / f".{version}")
        return unneeded

    def _path(self, task: str, language: str) -> Path:
        # Names come from bundles and users, and must not lead elsewhere.
        if not _are_names(task, language):
            raise PublicationError(
                f"{task!r} in {language!r} cannot be published: a task is lower-case letters, digits and dashes, a "
                "language a BCP 47 tag such as 'de'."
            )
        return self.folder / "tasks" / task / language

    def _record(self, task: str, language: str, number: int) -> Path:
        return self._path(task, language) / f"{number:08}" / _RECORD

    def _status_file(self, name: str) -> Path:
        return self.folder / "answers" / f"{name}.json"


def _are_names(task: str, language: str) -> bool:
    try:
        _NAMES.validate_python((task, language))
    except pydantic.ValidationError:
        return False
    return True


def _folder_names(folder: Path) -> list[str]:
    """Return the folders in a folder, if it exists, without those that are being written."""
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if not each.name.startswith(".") and each.is_dir())
    except FileNotFoundError:
        return []
