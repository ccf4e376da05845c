"""The gate of bundles: a new version must keep what the champion serves, except for changes that are named."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pydantic

from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.bundle.format import bundle_examples, bundle_languages
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.data.languages import quoted
from lingraft.errors import ArtifactError, PromotionError
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion.gate import Check
from lingraft.tracking.tags import parity_of
from lingraft.tracking.versions import Version, download_manifest

_EMBEDDINGS = "embeddings-"
"""Prefix of a bundle's inputs that are embeddings; the language follows."""
_DATA = "data."
"""Prefix of the registry's tags for inputs."""


class AllowedChanges(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Changes to production that the requester has allowed by name."""

    drop_languages: tuple[str, ...] = ()
    """Languages that may leave production."""
    new_primary: bool = False
    """Whether the bundle may belong to another primary than the champion."""
    new_labels: bool = False
    """Whether kind of task, labels or their order may differ from the champion's."""


NO_CHANGES = AllowedChanges()


@dataclass(frozen=True)
class BundleContent:
    """The properties of a bundle that decide whether it may become champion."""

    title: str
    """Name of the version in messages."""
    source: str
    languages: tuple[str, ...]
    """All languages of the bundle, the source language first."""
    primary: str
    """Fingerprint of the primary."""
    answers: tuple[str, tuple[str, ...]] | None
    """Kind of task, and its labels in the order of the logits; None if the manifest cannot be read."""
    embeddings: Mapping[str, str]
    """Fingerprints of the embeddings by language; the source language has none."""
    parity: Mapping[str, float]
    """Largest difference of a logit between ONNX Runtime in float32 and PyTorch, by language."""
    examples: Mapping[str, Mapping[str, str]]
    """Example texts of the endpoint's page, by language; empty without any, or if the manifest cannot be read."""

    @classmethod
    def of(cls, title: str, manifest: Manifest) -> "BundleContent":
        """Read the properties from a bundle's manifest.

        Raises:
            ArtifactError: the manifest lacks one of them.
        """
        return cls(
            title=title,
            source=str(manifest.language),
            parity=parity_of(manifest),
            languages=tuple(bundle_languages(manifest)),
            primary=str(manifest.aligned_with),
            answers=(manifest.detail("kind", str), tuple(manifest.detail("labels", list[str]))),
            embeddings=_embeddings_among(manifest.data_hashes, _EMBEDDINGS),
            examples=bundle_examples(manifest),
        )

    @classmethod
    def of_tags(cls, title: str, tags: Mapping[str, str]) -> "BundleContent":
        """Read the properties from the registry's tags if the manifest is damaged: no labels, parity and examples."""
        embeddings = _embeddings_among(tags, f"{_DATA}{_EMBEDDINGS}")
        source = tags.get("language", "")
        return cls(
            title=title,
            source=source,
            languages=(source, *sorted(embeddings)),
            primary=tags.get("aligned_with", ""),
            answers=None,
            embeddings=embeddings,
            parity={},
            examples={},
        )

    @property
    def shown_answers(self) -> str:
        """Kind of task and labels in messages."""
        return f"{self.answers[0]} [{', '.join(self.answers[1])}]" if self.answers else "labels that are not known"


def _embeddings_among(inputs: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in inputs.items() if name.startswith(prefix)}


def bundle_content(client: RetryingClient, version: Version) -> BundleContent:
    """Read the content of a registered bundle from its manifest, the only file that is downloaded.

    Raises:
        ArtifactError: the manifest is damaged, or belongs to another kind of artifact.
    """
    return BundleContent.of(version.title, download_manifest(client, version, Kind.BUNDLE))


def served_content(client: RetryingClient, version: Version | None) -> BundleContent | None:
    """Read the content of a bundle in production; of a damaged one, which is to be replaced, from its tags."""
    if version is None:
        return None
    try:
        return bundle_content(client, version)
    except ArtifactError:
        return BundleContent.of_tags(version.title, version.tags)


def languages_in(contents: Iterable[BundleContent | None]) -> list[str]:
    """Return the languages of some bundles without repetition, in order."""
    return [*dict.fromkeys(language for content in contents if content for language in content.languages)]


@dataclass(frozen=True)
class BundleChange:
    """The change of production when one bundle replaces another; None stands for no bundle."""

    before: BundleContent | None
    """The champion."""
    after: BundleContent | None
    recorded: BundleContent | None = None
    """Champion by the record of decisions, which differs if somebody moved the alias by hand."""

    @property
    def served(self) -> list[str]:
        """Languages in production."""
        return languages_in((self.before, self.recorded))

    @property
    def lost(self) -> tuple[str, ...]:
        """Languages that the change removes from production."""
        after = self.after.languages if self.after else ()
        return tuple(each for each in self.served if each not in after)

    def require_removed(self, allowed: AllowedChanges) -> None:
        """Refuse names of languages to drop that the change does not remove, such as misspelt ones.

        Raises:
            PromotionError: the message lists the languages in production, and those that would leave.
        """
        if strange := sorted(set(allowed.drop_languages) - set(self.lost)):
            raise PromotionError(
                f"--drop-language names {quoted(strange)}, but this takes none of them out of production: the "
                f"champion has {quoted(self.served) or 'none'}; {quoted(self.lost) or 'none'} would leave."
            )

    def checks(self, allowed: AllowedChanges) -> list[Check]:
        """Check that languages, primary and labels stay, except for allowed changes; no checks without a champion."""
        before = self.before or self.recorded
        if before is None:
            return []
        languages = self._languages(before, allowed)
        if self.after is None:
            return [languages]
        return [languages, _primary(before, self.after, allowed), _labels(before, self.after, allowed)]

    def gate_checks(self, accepted: Collection[str]) -> list[Check]:
        """Check that the new bundle agrees with PyTorch, and that the gate has accepted all its embeddings."""
        return [_parity(self.after), self._embeddings(self.after, accepted)] if self.after else []

    def _languages(self, before: BundleContent, allowed: AllowedChanges) -> Check:
        unnamed = [language for language in self.lost if language not in allowed.drop_languages]
        if not unnamed:
            dropped = f", but for {quoted(self.lost)}, which somebody named" if self.lost else ""
            return Check(name="languages", passed=True, says=f"all languages of {before.title} stay{dropped}")
        new = (
            f"{self.after.title} has {quoted(self.after.languages)}" if self.after else "and no bundle takes its place"
        )
        options = " ".join(f"--drop-language {language}" for language in unnamed)
        says = (
            f"{quoted(unnamed)} would leave production: {before.title} has {quoted(self.served)}, {new}. Run the "
            f"language pipeline, which takes them along, or ask for it by name: {options}"
        )
        return Check(name="languages", passed=False, says=says)

    def _embeddings(self, after: BundleContent, accepted: Collection[str]) -> Check:
        served = self.before.embeddings if self.before else {}
        wanted = [language for language in after.languages if language != after.source]
        refused = [
            f"{language!r} ({str(after.embeddings.get(language))[:12]})"
            for language in wanted
            if after.embeddings.get(language) not in {*accepted, served.get(language)} - {None}
        ]
        says = f"the gate has accepted the embeddings of {quoted(wanted) or 'no other language'}"
        if refused:
            says = (
                f"the gate has not accepted the embeddings of {', '.join(refused)} in {after.title}. Promote them "
                "first, and bundle again"
            )
        return Check(name="embeddings", passed=not refused, says=says)


def _primary(before: BundleContent, after: BundleContent, allowed: AllowedChanges) -> Check:
    passed = before.primary == after.primary or allowed.new_primary
    says = f"{after.title} is made for primary {after.primary[:12]}, {before.title} for {before.primary[:12]}"
    return Check(
        name="primary",
        passed=passed,
        says=says if passed else f"{says}. Ask for the new one by name: --new-primary",
    )


def _labels(before: BundleContent, after: BundleContent, allowed: AllowedChanges) -> Check:
    passed = allowed.new_labels or (before.answers is not None and before.answers == after.answers)
    if before.answers is None and not passed:
        says = (
            f"the labels of {before.title} are not known, as its manifest is damaged. Look whether those of "
            f"{after.title}, {after.shown_answers}, are right, and allow them by name: --new-labels"
        )
    elif before.answers == after.answers:
        says = f"the labels are those of {before.title}"
    else:
        says = f"{before.title} answers by {before.shown_answers}, {after.title} by {after.shown_answers}"
        if not passed:
            says += ": clients would read answers wrongly. Ask for the new ones by name: --new-labels"
    return Check(name="labels", passed=passed, says=says)


def _parity(content: BundleContent) -> Check:
    unknown = [language for language in content.languages if language not in content.parity]
    far = [language for language, found in content.parity.items() if not found <= PARITY_TOLERANCE]
    measured = ", ".join(f"{language} {found:.2g}" for language, found in content.parity.items())
    if unknown or far:
        says = (
            f"{content.title} does not agree with PyTorch within {PARITY_TOLERANCE:g} in {quoted([*far, *unknown])} "
            f"({measured or 'no parity is known'}). Export it again"
        )
        return Check(name="parity", passed=False, says=says)
    says = f"ONNX Runtime and PyTorch agree within {PARITY_TOLERANCE:g} in every logit ({measured})"
    return Check(name="parity", passed=True, says=says, numbers=dict(content.parity))
