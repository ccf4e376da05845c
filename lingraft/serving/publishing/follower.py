"""Following a folder of publications: a server takes up what is published, answers there, and goes on as it was where
what was published does not fit.

Nothing but the folder tells a server what to serve, so that a server that is started anew comes to the same.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.bundle.format import bundle_languages
from lingraft.bundle.language_part import BODY_FINGERPRINTS, language_version
from lingraft.config.encoder import EncoderShape
from lingraft.errors import ArtifactError, LingraftError, MissingExtraError, PublicationError, ServingError
from lingraft.serving.bundle import Bundle, ServedLanguage, open_language
from lingraft.serving.logs import log_event
from lingraft.serving.publishing.publications import LanguageStatus, Publication, Publications, ReplicaStatus
from lingraft.serving.served_bundles import ServedBundles

try:
    from prometheus_client import Counter, Gauge
except ImportError as error:
    raise MissingExtraError("prometheus-client", "serving") from error

_LABELS = ("task", "language")
_OUTCOMES = Counter("lingraft_publications", "Publications that were looked at", [*_LABELS, "outcome"])
_NUMBER = Gauge("lingraft_publication", "Number of the publication that is served; 0: as started", _LABELS)
_REFUSED = Gauge("lingraft_publication_refused", "Whether the last publication was refused", _LABELS)
_MAX_REFUSALS = 16
"""Reasons that an answer has room for, the last ones: a publisher that offers what does not fit goes on for months."""
_Key = tuple[str, str]


@contextlib.contextmanager
def follow_publications(
    served: ServedBundles, bundles: Iterable[Path], folder: Path | None, every_s: float
) -> Iterator[None]:
    """Follow a folder while the body runs, if there is one; what is published by now is taken up first.

    Raises:
        PublicationError: the folder is not there, and cannot be made.
        ArtifactError: a bundle is damaged.
    """
    with Follower(served, bundles, folder, every_s).running() if folder else contextlib.nullcontext():
        yield


class Follower:
    """One server's eye on a folder."""

    def __init__(self, served: ServedBundles, bundles: Iterable[Path], folder: Path, every_s: float) -> None:
        """Remember what the server was started with.

        Args:
            served: what publications change.
            bundles: folders that it was loaded from.
            folder: of publications; made if there is none, in a folder that is there.
            every_s: how often to look.

        Raises:
            PublicationError: there is no such folder, and it cannot be made.
            ArtifactError: a bundle is damaged.
        """
        _make_folder(folder)
        self._served = served
        self._publications = Publications(folder)
        self._every_s = every_s
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._originals: dict[_Key, ServedLanguage] = {
            (name, tag): language
            for name, bundle in served.bundles.items()
            for tag, language in bundle.languages.items()
        }
        self._versions: dict[_Key, str] = {}
        for bundle in bundles:
            manifest = Artifact.open(bundle, Kind.BUNDLE).manifest
            for tag in bundle_languages(manifest):
                self._versions[manifest.detail("task", str), tag] = language_version(manifest, tag)
        self._replies = {key: LanguageStatus(version=version) for key, version in self._versions.items()}
        self._written_status: ReplicaStatus | None = None
        self._warned: set[str] = set()
        self._ended = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Look once, then again and again in a thread of its own until the body ends."""
        self.poll()
        thread = threading.Thread(target=self._poll_until_stopped, name="publications", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            if self._written_status:
                self._publications.remove_status(self._name)

    def poll(self) -> None:
        """Take up what was published since the last time, and answer."""
        served = self._served.bundles
        for key in self._publications.languages():
            if key[0] in served:
                self._poll_language(*key)
        self._write_status()

    def _poll_until_stopped(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self.poll()
            except (OSError, LingraftError) as error:  # a volume that is away for a moment; what is served stays
                self._warn_once("publications-unreadable", error)
            else:
                self._warned.discard("publications-unreadable")

    def _poll_language(self, task: str, tag: str) -> None:
        """The newest publication that can be served is; a newer one that cannot has a reason from now on."""
        reply = self._replies.get((task, tag), LanguageStatus())
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
            except OSError:  # a volume that is away for a moment; the next look reads it again
                raise
            except Exception as error:  # noqa: BLE001  files as the manifest has them may still be no tensors
                refused[number] = reason = _reason(error)
                _OUTCOMES.labels(task, tag, "refused").inc()
                log_event("refused", logging.ERROR, task=task, language=tag, publication=number, reason=reason)
                continue
            reply = LanguageStatus(number=number, version=version)
            _OUTCOMES.labels(task, tag, "served").inc()
            log_event("published", task=task, language=tag, publication=number, version=version)
            break
        kept = {number: refused[number] for number in sorted(refused)[-_MAX_REFUSALS:]}
        self._replies[task, tag] = LanguageStatus(seen=latest, number=reply.number, version=reply.version, refused=kept)
        _NUMBER.labels(task, tag).set(reply.number)
        _REFUSED.labels(task, tag).set(latest in refused)

    def _apply(self, publication: Publication) -> str | None:
        """Serve what a publication says; returns the version."""
        task = publication.task
        tag = publication.language
        key = (publication.task, publication.language)
        if publication.action == "serve":
            self._served.put(task, tag, self._open_version(publication))
            return publication.version
        if publication.action == "restore" and key in self._originals:
            self._served.put(task, tag, self._originals[key])
            return self._versions[key]
        if tag in self._served[task].languages:
            self._served.remove(task, tag)
        return None

    def _open_version(self, publication: Publication) -> ServedLanguage:
        """A published language, verified and known to fit.

        Raises:
            ArtifactError: it is damaged.
            ServingError: it was made for another body.
            TokenizerError: its tokenizer is not the one that its table belongs to.
        """
        task = publication.task
        tag = publication.language
        part = Artifact.load(self._publications.version_path(task, tag, str(publication.version)), Kind.LANGUAGE)
        actual = language_version(part.manifest, tag)
        if actual != publication.version:
            raise ArtifactError(f"{part.folder} holds version {actual}. Publish the language again.")
        _require_body(part, self._served[task])
        return open_language(part, tag, self._served.opened_files)

    def _write_status(self) -> None:
        """Answer where publishers look; a folder that may only be read is followed without."""
        said = ReplicaStatus(name=self._name, replies=self._by_task())
        try:
            if said == self._written_status:
                self._publications.touch(self._name)
            else:
                self._publications.write_status(said)
                self._written_status = said
        except FileNotFoundError:  # somebody has cleared the answers away
            self._written_status = None
        except ArtifactError as error:
            self._warn_once("publishers-unanswered", error)
        else:
            self._warned.discard("publishers-unanswered")

    def _warn_once(self, event: str, error: Exception) -> None:
        """Log once what goes on until it is mended."""
        if event not in self._warned:
            self._warned.add(event)
            log_event(event, logging.WARNING, reason=str(error))

    def _by_task(self) -> dict[str, dict[str, LanguageStatus]]:
        found: dict[str, dict[str, LanguageStatus]] = {}
        for (task, tag), reply in sorted(self._replies.items()):
            found.setdefault(task, {})[tag] = reply
        return found


def _make_folder(folder: Path) -> None:
    """A volume that is not mounted is not made up: the folder around it must be there."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise PublicationError(
            f"{folder} is no folder, so nothing can be published there, and it cannot be made: {error.strerror}. Mount "
            "it, or name another."
        ) from error


def _reason(error: Exception) -> str:
    """Why a version is refused; one that readers of files and tensors fail on is not as export writes it."""
    if isinstance(error, LingraftError):
        return str(error)
    return f"the version cannot be opened: {type(error).__name__}: {error}. Export and publish the language again."


def _require_body(part: Artifact, bundle: Bundle) -> None:
    made_for = part.manifest.detail(BODY_FINGERPRINTS, dict[str, str]).get(bundle.precision)
    if made_for != bundle.body_fingerprint:
        raise ServingError(
            f"{part.manifest.language!r} was made for body {str(made_for)[:12]} of {bundle.name!r} in "
            f"{bundle.precision}, and this server has {bundle.body_fingerprint[:12]}. A language is published with "
            "the body that is served; another body is deployed (`lingraft deploy`)."
        )
    labels = part.manifest.detail("labels", list[str])
    shape = part.manifest.detail("shape", EncoderShape)
    if (labels, shape) != (bundle.labels, bundle.shape):
        raise ServingError(
            f"{part.manifest.language!r} was made for labels {labels} and shape ({shape}), and {bundle.name!r} is "
            f"served with {bundle.labels} and ({bundle.shape}). Publish the language of the bundle that is served, or "
            "deploy the other one (`lingraft deploy`)."
        )
