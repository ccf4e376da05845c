"""Changes of the server while it answers: languages come, change, go back and go, and bad versions are offered.

One cycle ends where it began, so that the same moment of every cycle is a fair place to compare memory at.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.serving.soaking.answers import Timeline
from benchmarks.serving.soaking.made import TASK, Made, versions
from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.artifacts.names import bundle_name, embeddings_name, primary_name
from lingraft.bundle.language_part import language_version
from lingraft.config.gate import Gate
from lingraft.config.systems import System
from lingraft.errors import ServingError
from lingraft.serving.publishing.publications import LanguageStatus, Publications
from lingraft.serving.publishing.publish import publish, rollback, withdraw
from lingraft.stages import results
from lingraft.stages.results import MASKED, MASKED_INITIAL, LanguageResult, MaskedScores
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tracking.promotion import promote as promotion
from lingraft.tracking.promotion.bundle_gate import NO_CHANGES, AllowedChanges
from lingraft.tracking.promotion.evidence import register_judged

BY = "the soak"
_BLOCKS = 100
_TAKEN_UP_S, _POLL_S = 120.0, 0.05
_UNREGISTERED = ("foreign",)
"""Published by hand only; the registry's way to a refusal is `mistaken`."""


class Registry:
    """Bundles as registered models of an MLflow server."""

    def __init__(self, made: Made) -> None:
        """Register everything; what servers are started with is champion."""
        self.model, self._numbers = bundle_name(made.recipe, TASK), dict[str, int]()
        run = tracking.open_run(made.recipe, "language")

        def register(name: str, folder: Path, kind: Kind) -> int:
            with tracking.stage(run, f"register-{folder.name}") as stage:
                return int(tracking.register(name, folder, kind, stage, {}))

        primary = primary_name(made.recipe)
        self._promote(primary, register(primary, made.primary, Kind.PRIMARY))
        for (language, number), folder in made.embeddings.items():
            with tracking.stage(run, f"register-{folder.name}") as stage:
                self._accept(stage, embeddings_name(made.recipe, language), folder, number)
        for name, folder in made.bundles.items():
            if name not in _UNREGISTERED:
                self._numbers[name] = register(self.model, folder, Kind.BUNDLE)
        self.promote("started")

    def promote(self, bundle: str, drop_languages: tuple[str, ...] = ()) -> None:
        """Make a bundle champion, without languages that are named."""
        self._promote(self.model, self._numbers[bundle], AllowedChanges(drop_languages=drop_languages))

    def rollback(self) -> None:
        """Make the one before champion again."""
        with tracking.retrying_client() as client:
            promotion.rollback(client, self.model, BY)

    def _accept(self, stage: tracking.StageRun, name: str, folder: Path, number: int) -> None:
        """Have the gate accept embeddings, by an evaluation that finds more tokens the later the version."""
        made, evaluation = Artifact.load(folder, Kind.EMBEDDINGS), folder.with_name(f"{folder.name}-judged")
        primary, score = str(made.manifest.aligned_with), number / 10
        result = LanguageResult(
            language=str(made.manifest.language),
            primary=primary,
            embeddings=made.fingerprint,
            system=System.MINIJOINT,
            depth=1,
            layers=1,
            vocabulary=1,
            overlap=0,
            masked=MaskedScores(mini=score, primary=score, mini_initial=0.0, primary_initial=0.0),
            tasks=(),
            cost=Cost(),
            whole_flops=1.0,
            history=[],
            precision="fp32",
        )
        each_N = np.full(_BLOCKS, 10)
        items = {
            MASKED: ItemCounts.of(each_N * number // 10, each_N),
            MASKED_INITIAL: ItemCounts.of(each_N * 0, each_N),
        }
        judged = results.save(result, evaluation, {"aligned_with": primary}, items)
        self._promote(name, int(register_judged(stage, name, folder, judged, Gate(), parity={}, more={})))

    def _promote(self, model: str, number: int, allowed: AllowedChanges = NO_CHANGES) -> None:
        with tracking.retrying_client() as client:
            decided = promotion.promote(client, model, number, BY, allowed=allowed)
        if decided.after != number:
            raise ServingError(f"version {number} of {model!r} was not promoted: {decided.checks}.")


@dataclass(frozen=True)
class Change:
    """One of them."""

    name: str
    do: Callable[[], object]
    served: Mapping[str, str | None] = field(default_factory=dict)
    """The version of each language that is published anew, afterwards; None: it is gone."""
    refused: str | None = None
    """The language that a bad version is offered of."""

    @property
    def languages(self) -> set[str]:
        """That something is published of."""
        return {*self.served, *([self.refused] if self.refused else [])}


class Done(NamedTuple):
    """A change that was carried out."""

    name: str
    at_s: float
    """When it was ordered."""
    elapsed_s: float
    """Seconds until the server had said what it made of it."""
    refused: bool


def cycle(made: Made, registry: Registry, published: Path) -> list[Change]:
    """All changes, by the registry and by hand, from what the server was started with back to it."""

    def by_hand(bundle: str, language: str) -> Callable[[], object]:
        return lambda: publish(made.bundles[bundle], published, BY, [language])

    def taken_back(language: str) -> Callable[[], object]:
        return lambda: rollback(published, TASK, language, BY)

    def champion(bundle: str, *dropped: str) -> Callable[[], object]:
        return lambda: registry.promote(bundle, dropped)

    return [
        Change("champion: German is swapped", champion("swapped"), {"de": "2"}),
        Change("champion: Swahili and Turkish are added", champion("grown"), {"sw": "1", "tr": "1"}),
        Change("champion: wrong golden answers are offered", champion("mistaken"), refused="de"),
        Change("champion: rolled back", registry.rollback, {"de": "2"}),
        Change("by hand: Turkish is swapped", by_hand("turned", "tr"), {"tr": "2"}),
        Change("by hand: Turkish is rolled back", taken_back("tr"), {"tr": "1"}),
        Change("by hand: another body is offered", by_hand("foreign", "de"), refused="de"),
        Change("by hand: the offer is rolled back", taken_back("de"), {"de": "2"}),
        Change("by hand: German is swapped", by_hand("started", "de"), {"de": "1"}),
        Change("champion: Turkish is swapped", champion("turned"), {"tr": "2"}),
        Change(
            "champion: Swahili and Turkish are taken away", champion("started", "sw", "tr"), {"sw": None, "tr": None}
        ),
        Change("by hand: Turkish is added", by_hand("grown", "tr"), {"tr": "1"}),
        Change("by hand: Turkish is withdrawn", lambda: withdraw(published, TASK, "tr", BY), {"tr": None}),
    ]


class Driver:
    """Carries changes out, and keeps account of which versions may stand."""

    def __init__(self, made: Made, published: Path, ask: Callable[[Sequence[str]], object]) -> None:
        """Begin with what the server was started with.

        Args:
            made: bundles of the soak.
            published: folder of publications.
            ask: has the load generator ask in these languages only, and returns once no other request is under way.
        """
        self.timeline = Timeline(versions("started"))
        self.served: dict[str, str] = versions("started")
        self._publications, self._ask = Publications(published), ask
        self._marks = {
            (language, version): language_version(Artifact.open(made.bundles[name], Kind.BUNDLE).manifest, language)
            for name in made.bundles
            if name not in _UNREGISTERED
            for language, version in versions(name).items()
        }

    def carry_out(self, change: Change) -> Done:
        """Do it, and wait until the server has taken it up.

        Raises:
            ServingError: it has not within two minutes, or has made something else of it.
        """
        before = {language: self._publications.latest_number(TASK, language) for language in change.languages}
        after = {language: version for language, version in {**self.served, **change.served}.items() if version}
        self._ask([language for language in self.served if language in after])
        began_s = time.monotonic()
        with self._accounted(change):
            change.do()
            for language, number in before.items():
                self._require(change, language, self._taken_up(change, language, number))
        done = Done(change.name, began_s, time.monotonic() - began_s, change.refused is not None)
        self.served = after
        self._ask(list(after))
        return done

    @contextmanager
    def _accounted(self, change: Change) -> Iterator[None]:
        """A new version may answer from before it is ordered; an old one until the server has said that it is gone."""
        for language, version in change.served.items():
            self.timeline.order(language, version, time.monotonic())
        yield
        for language in change.served:
            self.timeline.settle(language, time.monotonic())

    def _taken_up(self, change: Change, language: str, before: int) -> LanguageStatus:
        """Return what the server says of a language as soon as it has looked at something newer."""
        deadline_s = time.monotonic() + _TAKEN_UP_S
        while time.monotonic() < deadline_s:
            latest = self._publications.latest_number(TASK, language)
            for replica, _ in self._publications.replicas():
                reply = replica.status(TASK, language)
                if before < latest == reply.seen:
                    return reply
            time.sleep(_POLL_S)
        raise ServingError(f"{change.name!r} was not taken up within {_TAKEN_UP_S:g} s in {language!r}.")

    def _require(self, change: Change, language: str, reply: LanguageStatus) -> None:
        version = change.served.get(language) if language != change.refused else self.served[language]
        mark = None if version is None else self._marks[language, version]
        was_refused = reply.seen in reply.refused
        if reply.version != mark or was_refused != (language == change.refused):
            raise ServingError(
                f"{change.name!r} was to leave version {version} ({mark}) of {language!r}, refused "
                f"{language == change.refused}; the server says {reply}."
            )
