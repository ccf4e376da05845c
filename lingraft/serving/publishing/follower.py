"""Following a folder of publications: a server takes up what is published, reports on it, and goes on as before if a
publication does not fit.

Only the folder tells a server what to serve, so that a restarted server comes to the same.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Counter, Gauge

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.language_part import BODY_FINGERPRINTS, VERSION_DIGITS, language_version
from lingraft.config.encoder import EncoderShape
from lingraft.errors import ArtifactError, LingraftError, PublicationError, ServingError
from lingraft.retry import poll
from lingraft.serving.bundle import Bundle, ServedLanguage, open_language
from lingraft.serving.logs import log_event
from lingraft.serving.publishing.publications import LanguageStatus, Publication, Publications, ReplicaStatus
from lingraft.serving.served_bundles import ServedBundles

_LABELS = ("task", "language")
_OUTCOMES = Counter("lingraft_publications", "Publications that were looked at", [*_LABELS, "outcome"])
_NUMBER = Gauge("lingraft_publication", "Number of the publication that is served; 0: as started", _LABELS)
_REFUSED = Gauge("lingraft_publication_refused", "Whether the last publication was refused", _LABELS)
_MAX_REFUSALS = 16
"""Number of last refusals in a report: a publisher may offer what does not fit for months."""


class Follower:
    """Follows a folder of publications for one server."""

    def __init__(self, served: ServedBundles, folder: Path, every_s: float) -> None:
        """Remember what the server was started with.

        Raises:
            PublicationError: there is no such folder, and it cannot be created.
        """
        try:
            # Its parents are not created: a volume that is not mounted would be followed in vain.
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise PublicationError(
                f"{folder} is no folder, so nothing can be published there, and it cannot be made: {error.strerror}. "
                "Mount it, or name another."
            ) from error
        self._served = served
        self._publications = Publications(folder)
        self._every_s = every_s
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._originals = served.bundles
        self._replies = {
            name: {
                tag: LanguageStatus(version=each.fingerprint[:VERSION_DIGITS]) for tag, each in bundle.languages.items()
            }
            for name, bundle in self._originals.items()
        }
        self._written_status: ReplicaStatus | None = None
        self._warned: set[str] = set()
        self._stopping = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Poll once, then again and again in a thread of its own until the body of the `with` statement ends."""
        self.poll()
        thread = threading.Thread(target=self._poll_until_stopped, name="publications", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()
            if self._written_status:
                self._publications.remove_status(self._name)

    def poll(self) -> None:
        """Take up what was published since the last poll, and report.

        Raises:
            OSError: the folder cannot be read.
            ArtifactError: the report cannot be written.
        """
        served = self._served.bundles
        for task, tag in self._publications.languages():
            if task in served:
                self._poll_language(task, tag)
        self._write_status()

    def _poll_until_stopped(self) -> None:
        for _ in poll(self._every_s, ended=self._stopping):
            try:
                self.poll()
            except (OSError, LingraftError) as error:  # a volume that is away for a moment; what is served stays
                self._warn_once("publications-unreadable", error)
            else:
                self._warned.discard("publications-unreadable")

    def _poll_language(self, task: str, tag: str) -> None:
        """Serve the newest publication that can be served; newer ones are refused with a reason."""
        reply = self._replies[task].get(tag, LanguageStatus())
        latest = self._publications.latest_number(task, tag)
        if latest == reply.seen:
            return
        refused = dict(reply.refused)
        for number in range(latest, reply.seen, -1):
            try:
                publication = self._publications.read(task, tag, number)
                if publication.action == "withdraw" and number < latest:
                    break  # a later publication brought the language back, though not for this server's body
                version = self._apply(publication)
            except OSError:  # a volume that is away for a moment; the next poll reads it again
                raise
            except Exception as error:  # noqa: BLE001  files with the right hashes may still be no tensors
                refused[number] = reason = _refusal_reason(error)
                _OUTCOMES.labels(task, tag, "refused").inc()
                log_event("refused", logging.ERROR, task=task, language=tag, publication=number, reason=reason)
                continue
            reply = LanguageStatus(number=number, version=version)
            _OUTCOMES.labels(task, tag, "served").inc()
            log_event("published", task=task, language=tag, publication=number, version=version)
            break
        reported = {number: refused[number] for number in sorted(refused)[-_MAX_REFUSALS:]}
        self._replies[task][tag] = reply.model_copy(update={"seen": latest, "refused": reported})
        _NUMBER.labels(task, tag).set(reply.number)
        _REFUSED.labels(task, tag).set(latest in refused)

    def _apply(self, publication: Publication) -> str | None:
        task, tag = publication.task, publication.language
        original = self._originals[task].languages.get(tag)
        if publication.action == "serve":
            self._served.put(task, tag, self._open_version(publication))
            return publication.version
        if publication.action == "restore" and original:
            self._served.put(task, tag, original)
            return original.fingerprint[:VERSION_DIGITS]
        if tag in self._served[task].languages:
            self._served.remove(task, tag)
        return None

    def _open_version(self, publication: Publication) -> ServedLanguage:
        """Open a published language after verifying that it is undamaged and made for the served body."""
        task, tag = publication.task, publication.language
        part = Artifact.load(self._publications.version_path(task, tag, str(publication.version)), Kind.LANGUAGE)
        actual = language_version(part.manifest, tag)
        if actual != publication.version:
            raise ArtifactError(f"{part.folder} holds version {actual}. Publish the language again.")
        _require_body(part, self._served[task])
        return open_language(part, tag, self._served.opened_files, self._served[task].source)

    def _write_status(self) -> None:
        """Write the report; if the folder may only be read, publications are followed without one."""
        status = ReplicaStatus(name=self._name, replies={task: dict(each) for task, each in self._replies.items()})
        try:
            if status == self._written_status:
                self._publications.touch(self._name)
            else:
                self._publications.write_status(status)
                self._written_status = status
        except FileNotFoundError:  # somebody has removed the report
            self._written_status = None
        except ArtifactError as error:
            self._warn_once("publishers-unanswered", error)
        else:
            self._warned.discard("publishers-unanswered")

    def _warn_once(self, event: str, error: Exception) -> None:
        if event not in self._warned:
            self._warned.add(event)
            log_event(event, logging.WARNING, reason=str(error))


def _refusal_reason(error: Exception) -> str:
    if isinstance(error, LingraftError):
        return str(error)
    return f"the version cannot be opened: {type(error).__name__}: {error}. Export and publish the language again."


def _require_body(part: Artifact, bundle: Bundle) -> None:
    made_for = part.manifest.detail(BODY_FINGERPRINTS, dict[str, str]).get(bundle.precision)
    if made_for != bundle.body_fingerprint:
        raise ServingError(
            f"{part.manifest.language!r} was made for body {str(made_for)[:12]} of {bundle.name!r} in "
            f"{bundle.precision}, and this server has {bundle.body_fingerprint[:12]}. A language is published with "
            "the body that is served; start another server for another body."
        )
    labels = part.manifest.detail("labels", list[str])
    shape = part.manifest.detail("shape", EncoderShape)
    if (labels, shape) != (bundle.labels, bundle.shape):
        raise ServingError(
            f"{part.manifest.language!r} was made for labels {labels} and shape ({shape}), and {bundle.name!r} is "
            f"served with {bundle.labels} and ({bundle.shape}). Publish the language of the bundle that is served, or "
            "start a server with the other one."
        )
