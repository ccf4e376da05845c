"""The folder of publications: what endpoints are to serve, in which order it was decided, and what they answered.

    tasks/<task>/<language>/versions/<version>/     a language's part of a bundle, complete or absent
    tasks/<task>/<language>/00000003/               publication 3: what is to be served from then on
    answers/<replica>.json                          what a server made of it

Publications are numbered, and never changed: the highest number counts. A number is a folder that is renamed into
place, so that of two publishers at once one is first, and one that is killed leaves nothing that anybody sees.
"""

import datetime
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pydantic

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.files import atomic_folder, write_json
from lingraft.bundle.language_part import language_version, write_language_part
from lingraft.config.section import Language, Name
from lingraft.errors import ArtifactError, PublicationError, SupersededError

_RECORD = "publication.json"
_DIGITS = 8
_SILENT_S = 30.0
"""A server that was not heard of for so much longer than another one is gone."""
_NAMES = pydantic.TypeAdapter(tuple[Name, Language])

Action = Literal["serve", "withdraw", "restore"]
"""Serve a version, no version, or what the server was started with."""


class Publication(pydantic.BaseModel, frozen=True, extra="forbid"):
    """A decision about one language of one task."""

    number: int
    task: Name
    language: Language
    action: Action
    version: str | None = pydantic.Field(None, pattern=r"^[0-9a-f]{16}$", description="What is to be served.")
    undoes: int | None = pydantic.Field(None, description="Number of the publication that this one takes back.")
    by: str
    at: str = pydantic.Field(description="UTC, ISO 8601.")
    origin: str = pydantic.Field("", description="Where the version came from.")

    @property
    def summary(self) -> str:
        """In a line."""
        undone = f" (takes {self.undoes} back)" if self.undoes else ""
        version = f" {self.version}" if self.version else ""
        return f"{self.task} {self.language} {self.number}: {self.action}{version}{undone}, {self.at}, by {self.by}"


class LanguageStatus(pydantic.BaseModel, frozen=True, extra="forbid"):
    """What a server has made of a language's publications."""

    seen: int = pydantic.Field(0, description="Number of the last one that it has looked at.")
    number: int = pydantic.Field(0, description="Number of the one that it serves by; 0: as it was started.")
    version: str | None = pydantic.Field(None, description="What it serves; nothing if absent.")
    refused: dict[int, str] = pydantic.Field({}, description="Reasons by number, of the last ones.")


class ReplicaStatus(pydantic.BaseModel, frozen=True, extra="forbid"):
    """All that a server says."""

    name: str
    replies: dict[str, dict[str, LanguageStatus]] = pydantic.Field({}, description="By task and language.")

    def serves(self, task: str) -> set[str]:
        """Languages of a task that are served here."""
        return {language for language, reply in self.replies.get(task, {}).items() if reply.version}

    def status(self, task: str, language: str) -> LanguageStatus:
        """About one language."""
        return self.replies.get(task, {}).get(language, LanguageStatus())


@dataclass(frozen=True)
class Publications:
    """A folder of them, on a volume that publishers and servers share."""

    folder: Path

    def languages(self) -> Iterator[tuple[str, str]]:
        """Tasks and languages of which anything was published; folders that storage makes for itself are none."""
        for task in _names(self.folder / "tasks"):
            for language in _names(self.folder / "tasks" / task):
                if _is_place(task, language):
                    yield task, language

    def latest_number(self, task: str, language: str) -> int:
        """Number of a language's last publication; 0 if there is none. Reads no file.

        Raises:
            PublicationError: a name is none.
        """
        return max((int(name) for name in _names(self._place(task, language)) if name.isdecimal()), default=0)

    def history(self, task: str, language: str) -> list[Publication]:
        """A language's publications by number.

        Raises:
            ArtifactError: one is damaged.
        """
        return [self.read(task, language, number) for number in range(1, self.latest_number(task, language) + 1)]

    def read(self, task: str, language: str, number: int) -> Publication:
        """One of them.

        Raises:
            ArtifactError: it is damaged, or gone.
        """
        path = self._place(task, language) / _numbered(number) / _RECORD
        try:
            return Publication.model_validate_json(path.read_bytes())
        except (pydantic.ValidationError, FileNotFoundError) as error:
            raise ArtifactError(f"{path} is damaged: {error}. Publish the language again.") from error

    def latest_publication(self, task: str, language: str) -> Publication | None:
        """A language's last publication; None if there is none.

        Raises:
            ArtifactError: it is damaged.
        """
        number = self.latest_number(task, language)
        return self.read(task, language, number) if number else None

    def store_version(self, bundle: Artifact, language: str) -> str:
        """Copy a language's part of a bundle here, unless it is here; returns its version. Nobody serves it yet.

        Raises:
            ArtifactError: the folder cannot be written, or what is here already is damaged.
            PublicationError: the bundle does not have the language.
        """
        version = language_version(bundle.manifest, language)
        out = self.version_path(bundle.manifest.detail("task", str), language, version)
        if out.is_dir():
            Artifact.load(out, Kind.LANGUAGE)
            return version
        try:
            write_language_part(bundle, language, out)
        except ArtifactError:
            if not out.is_dir():
                raise
            Artifact.load(out, Kind.LANGUAGE)  # somebody else has brought the same meanwhile
        return version

    def version_path(self, task: str, language: str, version: str) -> Path:
        """Where a version lies."""
        return self._place(task, language) / "versions" / version

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
        """Decide what is served from now on.

        Raises:
            SupersededError: somebody else has published the same language at the same time, and was first.
            PublicationError: a name is none.
            ArtifactError: the folder cannot be written.
        """
        made = Publication(
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
        place = self._place(task, language) / _numbered(made.number)
        try:
            with atomic_folder(place) as temporary:
                write_json(temporary / _RECORD, made.model_dump(mode="json"))
        except ArtifactError as error:
            if not place.is_dir():
                raise
            raise SupersededError(
                f"somebody else has published {language!r} of {task!r} at the same time (number {made.number}). "
                "Look at it with `lingraft publish ls`, and publish again."
            ) from error
        return made

    def written_at_s(self, publication: Publication) -> float:
        """When the file system says that a publication was written, in seconds since 1970 of its own clock."""
        place = self._place(publication.task, publication.language)
        return (place / _numbered(publication.number) / _RECORD).stat().st_mtime

    def write_status(self, replica: ReplicaStatus) -> None:
        """Tell publishers what a server has made of what they published.

        Raises:
            ArtifactError: the folder cannot be written.
        """
        write_json(self._status_file(replica.name), replica.model_dump(mode="json"))

    def touch(self, name: str) -> None:
        """Show that a server is alive and has nothing new to say."""
        os.utime(self._status_file(name))

    def remove_status(self, name: str) -> None:
        """Say nothing any more, as a server that stops."""
        self._status_file(name).unlink(missing_ok=True)

    def replicas(self) -> Iterator[tuple[ReplicaStatus, float]]:
        """Servers, and when each was last heard of, in seconds since 1970 of the file system's clock."""
        for path in sorted((self.folder / "answers").glob("[!.]*.json")):
            try:
                heard_s = path.stat().st_mtime
                said = json.loads(path.read_bytes())
                yield ReplicaStatus.model_validate(said), heard_s
            except FileNotFoundError:  # it has just stopped
                continue

    def live_replicas(self) -> list[ReplicaStatus]:
        """Servers but for those that have gone without a word: not heard of for much longer than the last one."""
        heard = [*self.replicas()]
        newest_s = max((heard_s for _, heard_s in heard), default=0.0)
        return [replica for replica, heard_s in heard if heard_s > newest_s - _SILENT_S]

    def prune(self, task: str, language: str, keep: int) -> list[str]:
        """Remove versions that neither a language's last publications nor any server names; returns them.

        Args:
            task: its task.
            language: its tag.
            keep: how many publications back a rollback may go.
        """
        history = self.history(task, language)
        needed = {each.version for each in history[-keep:]}
        needed |= {replica.status(task, language).version for replica, _ in self.replicas()}
        place = self._place(task, language) / "versions"
        unneeded = [version for version in _names(place) if version not in needed]
        for version in unneeded:
            (place / version).rename(place / f".{version}")  # out of sight first: a part is complete or absent
            shutil.rmtree(place / f".{version}")
        return unneeded

    def _place(self, task: str, language: str) -> Path:
        """Where a language's publications lie; names come from bundles and users, and are not to lead elsewhere.

        Raises:
            PublicationError: a name is none.
        """
        if not _is_place(task, language):
            raise PublicationError(
                f"{task!r} in {language!r} cannot be published: a task is lower-case letters, digits and dashes, a "
                "language a BCP 47 tag such as 'de'."
            )
        return self.folder / "tasks" / task / language

    def _status_file(self, name: str) -> Path:
        return self.folder / "answers" / f"{name}.json"


def _numbered(number: int) -> str:
    return f"{number:0{_DIGITS}}"


def _is_place(task: str, language: str) -> bool:
    try:
        _NAMES.validate_python((task, language))
    except pydantic.ValidationError:
        return False
    return True


def _names(folder: Path) -> list[str]:
    """Folders in a folder, if it is there; what is being written begins with a dot."""
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if not each.name.startswith(".") and each.is_dir())
    except FileNotFoundError:
        return []
