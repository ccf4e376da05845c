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
from lingraft.bundle.format import languages_of
from lingraft.bundle.parts import BODIES, version_of
from lingraft.config.encoder import EncoderShape
from lingraft.errors import ArtifactError, LingraftError, MissingExtraError, PublicationError, ServingError
from lingraft.serving.bundle import Bundle, Language, open_language
from lingraft.serving.logs import tell
from lingraft.serving.publishing.folder import Publication, Publications, Replica, Reply
from lingraft.serving.served import Served

try:
    from prometheus_client import Counter, Gauge
except ImportError as error:
    raise MissingExtraError("prometheus-client", "serving") from error

_LABELS = ("task", "language")
_TAKEN_UP = Counter("lingraft_publications", "Publications that were looked at", [*_LABELS, "outcome"])
_NUMBER = Gauge("lingraft_publication", "Number of the publication that is served; 0: as started", _LABELS)
_REFUSED = Gauge("lingraft_publication_refused", "Whether the last publication was refused", _LABELS)
_REFUSALS_KEPT = 16
"""Reasons that an answer has room for, the last ones: a publisher that offers what does not fit goes on for months."""
_Key = tuple[str, str]


@contextlib.contextmanager
def following(served: Served, bundles: Iterable[Path], folder: Path | None, every_s: float) -> Iterator[None]:
    """Follow a folder while the body runs, if there is one; what is published by now is taken up first.

    Raises:
        PublicationError: the folder is not there, and cannot be made.
        ArtifactError: a bundle is damaged.
    """
    with Follower(served, bundles, folder, every_s).at_work() if folder else contextlib.nullcontext():
        yield


class Follower:
    """One server's eye on a folder."""

    def __init__(self, served: Served, bundles: Iterable[Path], folder: Path, every_s: float) -> None:
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
        self._served, self._publications, self._every_s = served, Publications(folder), every_s
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._originals: dict[_Key, Language] = {
            (name, tag): language
            for name, bundle in served.bundles.items()
            for tag, language in bundle.languages.items()
        }
        self._versions: dict[_Key, str] = {}
        for bundle in bundles:
            manifest = Artifact.open(bundle, Kind.BUNDLE).manifest
            for tag in languages_of(manifest):
                self._versions[manifest.detail("task", str), tag] = version_of(manifest, tag)
        self._replies = {key: Reply(version=version) for key, version in self._versions.items()}
        self._told: Replica | None = None
        self._complained: set[str] = set()
        self._ended = threading.Event()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Look once, then again and again in a thread of its own until the body ends."""
        self.look()
        thread = threading.Thread(target=self._go_on, name="publications", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            if self._told:
                self._publications.leave(self._name)

    def look(self) -> None:
        """Take up what was published since the last time, and answer."""
        served = self._served.bundles
        for key in self._publications.languages():
            if key[0] in served:
                self._look_at(*key)
        self._answer()

    def _go_on(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self.look()
            except (OSError, LingraftError) as error:  # a volume that is away for a moment; what is served stays
                self._complain("publications-unreadable", error)
            else:
                self._complained.discard("publications-unreadable")

    def _look_at(self, task: str, tag: str) -> None:
        """The newest publication that can be served is; a newer one that cannot has a reason from now on."""
        reply, latest = self._replies.get((task, tag), Reply()), self._publications.latest(task, tag)
        if latest == reply.seen:
            return
        refused = dict(reply.refused)
        for number in range(latest, reply.seen, -1):
            try:
                publication = self._publications.read(task, tag, number)
                if publication.action == "withdraw" and number < latest:
                    break  # a later publication brought the language back, though not for this server's body
                version = self._carry_out(publication)
            except OSError:  # a volume that is away for a moment; the next look reads it again
                raise
            except Exception as error:  # noqa: BLE001  files as the manifest has them may still be no tensors
                refused[number] = reason = _reason(error)
                _TAKEN_UP.labels(task, tag, "refused").inc()
                tell("refused", logging.ERROR, task=task, language=tag, publication=number, reason=reason)
                continue
            reply = Reply(number=number, version=version)
            _TAKEN_UP.labels(task, tag, "served").inc()
            tell("published", task=task, language=tag, publication=number, version=version)
            break
        kept = {number: refused[number] for number in sorted(refused)[-_REFUSALS_KEPT:]}
        self._replies[task, tag] = Reply(seen=latest, number=reply.number, version=reply.version, refused=kept)
        _NUMBER.labels(task, tag).set(reply.number)
        _REFUSED.labels(task, tag).set(latest in refused)

    def _carry_out(self, publication: Publication) -> str | None:
        """Serve what a publication says; returns the version."""
        task, tag, key = publication.task, publication.language, (publication.task, publication.language)
        if publication.action == "serve":
            self._served.put(task, tag, self._opened(publication))
            return publication.version
        if publication.action == "restore" and key in self._originals:
            self._served.put(task, tag, self._originals[key])
            return self._versions[key]
        if tag in self._served[task].languages:
            self._served.remove(task, tag)
        return None

    def _opened(self, publication: Publication) -> Language:
        """A published language, verified and known to fit.

        Raises:
            ArtifactError: it is damaged.
            ServingError: it was made for another body.
            TokenizerError: its tokenizer is not the one that its table belongs to.
        """
        task, tag = publication.task, publication.language
        part = Artifact.load(self._publications.part(task, tag, str(publication.version)), Kind.LANGUAGE)
        actual = version_of(part.manifest, tag)
        if actual != publication.version:
            raise ArtifactError(f"{part.folder} holds version {actual}. Publish the language again.")
        _require_body(part, self._served[task])
        return open_language(part, tag, self._served.shared)

    def _answer(self) -> None:
        """Answer where publishers look; a folder that may only be read is followed without."""
        said = Replica(name=self._name, replies=self._by_task())
        try:
            if said == self._told:
                self._publications.touch(self._name)
            else:
                self._publications.answer(said)
                self._told = said
        except FileNotFoundError:  # somebody has cleared the answers away
            self._told = None
        except ArtifactError as error:
            self._complain("publishers-unanswered", error)
        else:
            self._complained.discard("publishers-unanswered")

    def _complain(self, event: str, error: Exception) -> None:
        """Log once what goes on until it is mended."""
        if event not in self._complained:
            self._complained.add(event)
            tell(event, logging.WARNING, reason=str(error))

    def _by_task(self) -> dict[str, dict[str, Reply]]:
        found: dict[str, dict[str, Reply]] = {}
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
    made_for = part.manifest.detail(BODIES, dict[str, str]).get(bundle.precision)
    if made_for != bundle.body_fingerprint:
        raise ServingError(
            f"{part.manifest.language!r} was made for body {str(made_for)[:12]} of {bundle.name!r} in "
            f"{bundle.precision}, and this server has {bundle.body_fingerprint[:12]}. A language is published with "
            "the body that is served; another body is deployed (`lingraft deploy`)."
        )
    labels, shape = part.manifest.detail("labels", list[str]), part.manifest.detail("shape", EncoderShape)
    if (labels, shape) != (bundle.labels, bundle.shape):
        raise ServingError(
            f"{part.manifest.language!r} was made for labels {labels} and shape ({shape}), and {bundle.name!r} is "
            f"served with {bundle.labels} and ({bundle.shape}). Publish the language of the bundle that is served, or "
            "deploy the other one (`lingraft deploy`)."
        )
