"""The gate of bundles: a new version must keep what the champion serves, except for changes that are named."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pydantic

from lingraft.artifacts.artifact import Manifest
from lingraft.bundle.format import bundle_examples, bundle_languages
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.data.languages import quoted
from lingraft.errors import PromotionError
from lingraft.tracking.promotion.gate import Check
from lingraft.tracking.tags import parity_of

_EMBEDDINGS = "embeddings-"
"""Prefix of a bundle's inputs that are embeddings; the language follows."""
_EMBEDDINGS_TAG = f"data.{_EMBEDDINGS}"
"""Prefix of the registry's tags for these inputs."""


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
        parity = parity_of(manifest)
        return cls(
            title=title,
            source=str(manifest.language),
            languages=tuple(bundle_languages(manifest)),
            primary=str(manifest.aligned_with),
            answers=(manifest.detail("kind", str), tuple(manifest.detail("labels", list[str]))),
            embeddings={
                name.removeprefix(_EMBEDDINGS): mark
                for name, mark in manifest.data_hashes.items()
                if name.startswith(_EMBEDDINGS)
            },
            parity=parity,
            examples=bundle_examples(manifest),
        )

    @classmethod
    def of_tags(cls, title: str, tags: Mapping[str, str]) -> "BundleContent":
        """Read the properties from the registry's tags if the manifest is damaged: no labels, parity and examples."""
        embeddings = {
            name.removeprefix(_EMBEDDINGS_TAG): mark for name, mark in tags.items() if name.startswith(_EMBEDDINGS_TAG)
        }
        source = tags.get("language", "")
        primary = tags.get("aligned_with", "")
        return cls(title, source, (source, *sorted(embeddings)), primary, None, embeddings, {}, {})


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
    def lost(self) -> tuple[str, ...]:
        """Languages that the change removes from production."""
        after = self.after.languages if self.after else ()
        return tuple(each for each in languages_in((self.before, self.recorded)) if each not in after)

    def require_removed(self, allowed: AllowedChanges) -> None:
        """Refuse names of languages to drop that the change does not remove, such as misspelt ones.

        Raises:
            PromotionError: the message lists the languages in production, and those that would leave.
        """
        if strange := sorted(set(allowed.drop_languages) - set(self.lost)):
            served = quoted(languages_in((self.before, self.recorded))) or "none"
            raise PromotionError(
                f"--drop-language names {quoted(strange)}, but this takes none of them out of production: the "
                f"champion has {served}; {quoted(self.lost) or 'none'} would leave."
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
        """Check that the new bundle agrees with PyTorch, and that the gate has accepted all its embeddings.

        Args:
            accepted: fingerprints of promoted artifacts.
        """
        if self.after is None:
            return []
        return [_parity(self.after), self._embeddings(self.after, accepted)]

    def _languages(self, before: BundleContent, allowed: AllowedChanges) -> Check:
        unnamed = [language for language in self.lost if language not in allowed.drop_languages]
        if not unnamed:
            dropped = f", but for {quoted(self.lost)}, which somebody named" if self.lost else ""
            return Check(name="languages", passed=True, says=f"all languages of {before.title} stay{dropped}")
        new = self.after.title if self.after else "no bundle"
        named = " ".join(f"--drop-language {language}" for language in unnamed)
        says = (
            f"{quoted(unnamed)} would leave production: {before.title} has "
            f"{quoted(languages_in((self.before, self.recorded)))}, "
            f"{new} has {quoted(self.after.languages) if self.after else 'none'}. "
            f"Run the language pipeline, which takes them along, or ask for it by name: {named}."
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
        if refused:
            says = (
                f"the gate has not accepted the embeddings of {', '.join(refused)} in {after.title}. Promote them "
                "first, and bundle again."
            )
            return Check(name="embeddings", passed=False, says=says)
        says = f"the gate has accepted the embeddings of {quoted(wanted) or 'no other language'}"
        return Check(name="embeddings", passed=True, says=says)


def _primary(before: BundleContent, after: BundleContent, allowed: AllowedChanges) -> Check:
    fits = before.primary == after.primary
    says = f"{after.title} is made for primary {after.primary[:12]}, {before.title} for {before.primary[:12]}"
    if fits or allowed.new_primary:
        return Check(name="primary", passed=True, says=says)
    return Check(name="primary", passed=False, says=f"{says}. Ask for the new one by name: --new-primary.")


def _labels(before: BundleContent, after: BundleContent, allowed: AllowedChanges) -> Check:
    if before.answers is None and not allowed.new_labels:
        says = f"the labels of {before.title} are not known, as its manifest is damaged. Look whether those of "
        says += f"{after.title}, {_shown(after)}, are right, and allow them by name: --new-labels."
        return Check(name="labels", passed=False, says=says)
    if before.answers == after.answers:
        return Check(name="labels", passed=True, says=f"the labels are those of {before.title}")
    says = f"{before.title} answers by {_shown(before)}, {after.title} by {_shown(after)}"
    if allowed.new_labels:
        return Check(name="labels", passed=True, says=says)
    says += ": clients would read answers wrongly. Ask for the new ones by name: --new-labels."
    return Check(name="labels", passed=False, says=says)


def _parity(content: BundleContent) -> Check:
    unknown = [language for language in content.languages if language not in content.parity]
    far = [language for language, found in content.parity.items() if not found <= PARITY_TOLERANCE]
    shown = ", ".join(f"{language} {found:.2g}" for language, found in content.parity.items())
    if unknown or far:
        says = (
            f"{content.title} does not agree with PyTorch within {PARITY_TOLERANCE:g} in {quoted([*far, *unknown])} "
            f"({shown or 'no parity is known'}). Export it again."
        )
        return Check(name="parity", passed=False, says=says)
    says = f"ONNX Runtime and PyTorch agree within {PARITY_TOLERANCE:g} in every logit ({shown})"
    return Check(name="parity", passed=True, says=says, numbers=dict(content.parity))


def _shown(content: BundleContent) -> str:
    if content.answers is None:
        return "labels that are not known"
    kind, labels = content.answers
    return f"{kind} [{', '.join(labels)}]"
