"""Publishing: what is to be served is written down, then the servers are asked what they made of it."""

import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Kind, Manifest
from lingraft.bundle.format import bundle_languages
from lingraft.bundle.language_part import language_files, language_version
from lingraft.data.languages import quoted
from lingraft.errors import PublicationError
from lingraft.serving.publishing.publications import Publication, Publications, ReplicaStatus

_POLL_S = 0.1


@dataclass(frozen=True)
class PublicationResult:
    """What one server has made of a publication."""

    publication: Publication
    replica: str
    reason: str | None
    """Why it was refused; it is served if absent."""

    @property
    def summary(self) -> str:
        """In a line."""
        made = f"refused: {self.reason}" if self.reason else "served" if self.publication.version else "done"
        return (
            f"{self.publication.task} {self.publication.language} {self.publication.number} on {self.replica}: {made}"
        )


def publish(
    bundle: Path, folder: Path, by: str, languages: Sequence[str] | None = None, origin: str = ""
) -> list[Publication]:
    """Publish languages of a bundle; one that was published last in this very version is left as it is.

    Args:
        bundle: whole, with the body that servers have. Of its files those of these languages are read.
        folder: of publications.
        by: who asks, for the record.
        languages: of the bundle; if absent, those that are published or served in another version, or not at all.
        origin: where the bundle came from, for the record; its fingerprint if empty.

    Raises:
        ArtifactError: a language's files are damaged, or the folder cannot be written.
        PublicationError: the bundle does not have a language.
        SupersededError: somebody else has published one at the same time, and was first.
    """
    found = Artifact.open(bundle, Kind.BUNDLE)
    publications = Publications(folder)
    task: str = found.manifest.detail("task", str)
    wanted = _changed_languages(found.manifest, publications) if languages is None else languages
    for name in itertools.chain.from_iterable(language_files(found.manifest, language) for language in wanted):
        found.verify(name)
    versions = {language: publications.store_version(found, language) for language in wanted}
    return [
        publications.append(task, language, "serve", by, version, origin=origin or found.fingerprint[:12])
        for language, version in versions.items()
        if version != published_version(publications, task, language)
    ]


def current_version(publications: Publications, task: str, language: str) -> str | None:
    """The version of a language that is to be served: the published one, else that which all servers were started with.

    Raises:
        ArtifactError: a publication or an answer is damaged.
    """
    last = publications.latest_publication(task, language)
    if last and last.action != "restore":
        return last.version
    served = {
        replica.status(task, language).version for replica in publications.live_replicas() if task in replica.replies
    }
    return served.pop() if len(served) == 1 else None


def _changed_languages(manifest: Manifest, publications: Publications) -> list[str]:
    task: str = manifest.detail("task", str)
    return [
        language
        for language in bundle_languages(manifest)
        if language_version(manifest, language) != current_version(publications, task, language)
    ]


def published_version(publications: Publications, task: str, language: str) -> str | None:
    """The version that a language's last publication says; None where it says none.

    Raises:
        ArtifactError: it is damaged.
    """
    last = publications.latest_publication(task, language)
    return last.version if last else None


def withdraw(folder: Path, task: str, language: str, by: str) -> Publication:
    """Take a language away, also one that servers were started with.

    Raises:
        PublicationError: it is neither published nor served; the message says which languages are.
        SupersededError: somebody else has published it at the same time, and was first.
        ArtifactError: the folder cannot be written.
    """
    publications = Publications(folder)
    there = served_languages(publications)
    if language not in there.get(task, ()):
        listed = "; ".join(f"{name}: {quoted(sorted(known))}" for name, known in sorted(there.items()))
        heard = (
            ""
            if publications.live_replicas()
            else " No server has answered there; what it was started with is not known."
        )
        raise PublicationError(
            f"{language!r} of {task!r} is not served, so it cannot be withdrawn. {folder} has {listed or 'nothing'}."
            f"{heard}"
        )
    return publications.append(task, language, "withdraw", by)


def served_languages(publications: Publications) -> dict[str, set[str]]:
    """Languages by task that are published, or that a server was started with; without those that were withdrawn."""
    found: dict[str, set[str]] = defaultdict(set)
    for replica in publications.live_replicas():
        for task in replica.replies:
            found[task] |= replica.serves(task)
    for task, language in publications.languages():
        last = publications.latest_publication(task, language)
        if last and last.action == "serve":
            found[task].add(language)
        elif last and last.action == "withdraw":
            found[task].discard(language)
    return {task: languages for task, languages in found.items() if languages}


def rollback(folder: Path, task: str, language: str, by: str) -> Publication:
    """Take the last publication of a language back that was not taken back yet.

    What stood before it stands again: an earlier publication, or what servers were started with.

    Raises:
        PublicationError: none is left.
        SupersededError: somebody else has published the language at the same time, and was first.
        ArtifactError: the folder cannot be written.
    """
    publications = Publications(folder)
    left = _not_undone(publications.history(task, language))
    if not left:
        raise PublicationError(
            f"no publication of {language!r} of {task!r} is left to take back. `lingraft publish ls` lists them."
        )
    undone = left[-1]
    before = left[-2] if len(left) > 1 else None
    action, version = (before.action, before.version) if before else ("restore", None)
    return publications.append(task, language, action, by, version, undoes=undone.number)


def wait_for_results(folder: Path, made: Sequence[Publication], wait_s: float) -> list[PublicationResult]:
    """What servers have made of publications, as soon as all that are alive have said so of all.

    A server is alive if it was heard of after the last publication, by the file system's own clock. One that answers
    later than `wait_s`, or not at all, is not among the verdicts.

    Raises:
        ArtifactError: an answer is damaged.
    """
    publications = Publications(folder)
    deadline_s = time.monotonic() + wait_s
    since_s = max((publications.written_at_s(each) for each in made), default=0.0)
    while True:
        known = [*publications.replicas()]
        alive = [replica for replica, heard_s in known if heard_s >= since_s]
        found = [verdict for replica in alive for each in made if (verdict := _result(each, replica))]
        if alive and len(alive) == len(known) and len(found) == len(alive) * len(made):
            return found
        if time.monotonic() >= deadline_s:
            return found
        time.sleep(_POLL_S)


def silent_replicas(folder: Path, made: Sequence[Publication], found: Sequence[PublicationResult]) -> list[str]:
    """Servers of the folder that have not answered to all publications.

    Raises:
        ArtifactError: an answer is damaged.
    """
    answers = [each.replica for each in found]
    return [each.name for each, _ in Publications(folder).replicas() if answers.count(each.name) < len(made)]


def require_served(made: Sequence[Publication], found: Sequence[PublicationResult]) -> None:
    """Fail unless every publication is served wherever a server has answered, and one has.

    Raises:
        PublicationError: a server has refused one, or none has answered.
    """
    if refused := [each for each in found if each.reason]:
        listed = "\n  ".join(each.summary for each in refused)
        raise PublicationError(
            f"{len(refused)} of {len(found)} answers are refusals, and what was served before is served on:\n  {listed}"
            "\nPublish another version, or take this one back with `lingraft publish rollback`."
        )
    if made and not found:
        raise PublicationError(
            "no server has answered. What was published stays, and a server that follows the folder takes it up when "
            "it is there; with --wait 0 nobody is waited for."
        )


def _not_undone(history: Sequence[Publication]) -> list[Publication]:
    """Publications that nobody has taken back, the last one at the end."""
    undone = {each.undoes for each in history}
    return [each for each in history if each.undoes is None and each.number not in undone]


def _result(publication: Publication, replica: ReplicaStatus) -> PublicationResult | None:
    reply = replica.status(publication.task, publication.language)
    if reply.seen < publication.number:
        return None
    return PublicationResult(publication, replica.name, reply.refused.get(publication.number))
