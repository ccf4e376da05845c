"""Publishing, withdrawing and rolling back languages, and waiting for the servers' reports."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import bundle_languages
from lingraft.bundle.language_part import language_files, language_version
from lingraft.data.languages import quoted
from lingraft.errors import PublicationError
from lingraft.retry import poll
from lingraft.serving.publishing.publications import Publication, Publications

_POLL_S = 0.1


@dataclass(frozen=True)
class PublicationResult:
    """Outcome of a publication on one server."""

    publication: Publication
    replica: str
    reason: str | None
    """Reason of a refusal; None if the publication is in force."""

    @property
    def summary(self) -> str:
        """Description in one line."""
        result = f"refused: {self.reason}" if self.reason else "served" if self.publication.version else "done"
        publication = f"{self.publication.task} {self.publication.language} {self.publication.number}"
        return f"{publication} on {self.replica}: {result}"


def publish(bundle: Path, folder: Path, by: str, languages: Sequence[str] | None = None) -> list[Publication]:
    """Publish languages of a bundle; a language whose last publication has the same version is skipped.

    Args:
        bundle: bundle with the body that servers have. Only the files of these languages are read.
        languages: languages of the bundle; if None, those that are not served in this version.

    Raises:
        ArtifactError: a language's files are damaged, or the folder cannot be written.
        PublicationError: the bundle does not have a language.
        SupersededError: another publisher has published one at the same time, and was first.
    """
    artifact = Artifact.open(bundle, Kind.BUNDLE)
    manifest, publications = artifact.manifest, Publications(folder)
    task: str = manifest.detail("task", str)
    if languages is None:
        languages = [
            language
            for language in bundle_languages(manifest)
            if language_version(manifest, language) != current_version(publications, task, language)
        ]
    for name in itertools.chain.from_iterable(language_files(manifest, language) for language in languages):
        artifact.verify(name)
    versions = {language: publications.store_version(artifact, language) for language in languages}
    made = []
    for language, version in versions.items():
        last = publications.latest_publication(task, language)
        if last is None or last.version != version:
            origin = artifact.fingerprint[:12]
            made.append(publications.append(task, language, "serve", by, version, origin=origin))
    return made


def current_version(publications: Publications, task: str, language: str) -> str | None:
    """Return the version that is to be served: the published one, else that which all servers were started with.

    Raises:
        ArtifactError: a publication or a report is damaged.
    """
    last = publications.latest_publication(task, language)
    if last and last.action != "restore":
        return last.version
    replicas = [replica for replica in publications.live_replicas() if task in replica.replies]
    served = {replica.status(task, language).version for replica in replicas}
    return served.pop() if len(served) == 1 else None


def withdraw(folder: Path, task: str, language: str, by: str) -> Publication:
    """Have servers stop serving a language, also one that they were started with.

    Raises:
        PublicationError: it is neither published nor served; the message says which languages are.
        SupersededError: another publisher has published it at the same time, and was first.
        ArtifactError: the folder cannot be written.
    """
    publications = Publications(folder)
    served = served_languages(publications)
    if language not in served.get(task, ()):
        listed = "; ".join(f"{name}: {quoted(sorted(known))}" for name, known in sorted(served.items()))
        silence = " No server has answered there; what it was started with is not known."
        raise PublicationError(
            f"{language!r} of {task!r} is not served, so it cannot be withdrawn. {folder} has {listed or 'nothing'}."
            f"{'' if publications.live_replicas() else silence}"
        )
    return publications.append(task, language, "withdraw", by)


def served_languages(publications: Publications) -> dict[str, set[str]]:
    """Return by task the languages that are published, or that a server was started with, and are not withdrawn.

    Raises:
        ArtifactError: a publication or a report is damaged.
    """
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
    """Take back the last publication of a language that was not taken back yet.

    The state before it is restored: an earlier publication, or what servers were started with.

    Raises:
        PublicationError: there is no publication to take back.
        SupersededError: another publisher has published the language at the same time, and was first.
        ArtifactError: the folder cannot be written.
    """
    publications = Publications(folder)
    history = publications.history(task, language)
    undone = {each.undoes for each in history}
    standing = [each for each in history if each.undoes is None and each.number not in undone]
    if not standing:
        raise PublicationError(
            f"no publication of {language!r} of {task!r} is left to take back. `lingraft publish ls` lists them."
        )
    *earlier, last = standing
    before = earlier[-1] if earlier else None
    return publications.append(
        task,
        language,
        action=before.action if before else "restore",
        by=by,
        version=before.version if before else None,
        undoes=last.number,
    )


def wait_for_results(folder: Path, made: Sequence[Publication], wait_s: float) -> list[PublicationResult]:
    """Wait until all servers that are alive have reported on all publications, at most `wait_s` seconds.

    A server is alive if it has reported after the last publication, by the file system's clock.

    Returns:
        Results so far; those of a server that is later, or silent, are missing.

    Raises:
        ArtifactError: a report is damaged.
    """
    publications = Publications(folder)
    results: list[PublicationResult] = []
    since_s = max((publications.written_at_s(each) for each in made), default=0.0)
    for _ in poll(_POLL_S, wait_s):
        known = [*publications.replicas()]
        alive = [replica for replica, reported_s in known if reported_s >= since_s]
        results = [
            PublicationResult(each, replica.name, reply.refused.get(each.number))
            for replica in alive
            for each in made
            if (reply := replica.status(each.task, each.language)).seen >= each.number
        ]
        if alive and len(alive) == len(known) and len(results) == len(alive) * len(made):
            break
    return results


def silent_replicas(folder: Path, made: Sequence[Publication], results: Sequence[PublicationResult]) -> list[str]:
    """Return the servers of the folder that have not reported on all publications.

    Raises:
        ArtifactError: a report is damaged.
    """
    answered = [each.replica for each in results]
    return [each.name for each, _ in Publications(folder).replicas() if answered.count(each.name) < len(made)]


def require_served(made: Sequence[Publication], results: Sequence[PublicationResult]) -> None:
    """Require that every server that has reported serves every publication, and that one has reported.

    Raises:
        PublicationError: a server has refused one, or none has reported.
    """
    if refused := [each for each in results if each.reason]:
        listed = "\n  ".join(each.summary for each in refused)
        raise PublicationError(
            f"{len(refused)} of {len(results)} answers are refusals, and what was served before is served on:\n"
            f"  {listed}\nPublish another version, or take this one back with `lingraft publish rollback`."
        )
    if made and not results:
        raise PublicationError(
            "no server has answered. What was published stays, and a server that follows the folder takes it up when "
            "it is there; with --wait 0 nobody is waited for."
        )
