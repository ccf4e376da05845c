"""No language leaves production unless somebody named it: random runs, failures, refusals, rollbacks and publications.

The registry is a real store, and so are the folder of publications and whoever follows the champion. Bundles and
embeddings are small artifacts of a few numbers: what they compute is not what this is about.
"""

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.artifact import Artifact, Kind
from lingraft.errors import ArtifactError, NotRegisteredError, PromotionError, PublicationError
from lingraft.publishing.champion import Champion
from lingraft.publishing.folder import Publications
from lingraft.publishing.publish import languages_of, publish, rollback, withdraw
from lingraft.registered import embeddings_name
from lingraft.registry.bundle_gate import AllowedChanges
from lingraft.registry.renewal import renew
from lingraft.tracking.versions import champion_of
from tests.registry.prepared import Prepared, opened
from tests.registry.project import Project
from tests.tracking_stores import quiet

pytestmark = quiet
TASK, SOURCE = "topic", "en"
TARGETS = ("de", "el", "tr")
NAMED = st.sets(st.sampled_from((SOURCE, *TARGETS)), max_size=2)


def refusals() -> contextlib.suppress:
    """What is refused changes nothing."""
    return contextlib.suppress(PromotionError, PublicationError, ArtifactError, NotRegisteredError)


ENDINGS = st.dictionaries(
    st.sampled_from(TARGETS), st.sampled_from(["accepted", "accepted", "refused", "failed"]), min_size=1
)


class Production(RuleBasedStateMachine):
    """A project whose bundle is served, and everybody who may change it."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.project: Project = self.stack.enter_context(opened(Prepared.PRIMARY, folder / "store"))
        self.marks = [self.project.mark]
        self.published, self.count = folder / "published", 0
        self.published.mkdir()
        self.bundles: list[Path] = []
        self.served: set[str] = set()
        self.dropped: set[str] = set()
        """Languages that have left the champion because a command named them, and are not back in it."""
        self.by_hand: set[str] = set()
        """The language that the last command took away from the endpoint alone."""
        self.champion: set[str] = set()
        self.unasked = False
        """Whether somebody has moved the alias past lingraft."""

    def teardown(self) -> None:
        self.stack.close()

    @initialize()
    def first_run(self) -> None:
        self.run(dict.fromkeys(TARGETS, "accepted"), set(), new_primary=False)
        self.publish()
        self.no_language_leaves_unless_named()
        assert self.served == {SOURCE, *TARGETS}

    @rule(endings=ENDINGS, named=NAMED, new_primary=st.booleans())
    def run(self, endings: Mapping[str, str], named: set[str], new_primary: bool) -> None:
        """A language run for some languages, each of which ends in its own way."""
        brought = {language: folder for language, end in endings.items() if (folder := self.ended(language, end))}
        if not brought:
            return
        allowed = AllowedChanges(drop_languages=tuple(sorted(named)), new_primary=new_primary)
        with tracking.stage(self.project.run, "bundle-topic") as stage:
            made = renew(
                stage, self.project.bundle, self.marks[-1], brought, self.export, lambda _: {}, allowed, "a run"
            )
        self.bundles.append(made.made.folder)
        self.asked(named)

    @rule(number=st.integers(1, 8), named=NAMED)
    def promote(self, number: int, named: set[str]) -> None:
        """An operator makes any version champion."""
        with refusals():
            self.project.promote(self.project.bundle, number, drop_languages=tuple(named))
        self.asked(named)

    @rule(named=NAMED)
    def roll_back(self, named: set[str]) -> None:
        """An operator takes the last promotion of the bundle back."""
        with refusals():
            self.project.rollback(self.project.bundle, drop_languages=tuple(named))
        self.asked(named)

    @rule(language=st.sampled_from(TARGETS))
    def roll_embeddings_back(self, language: str) -> None:
        """An operator takes the last promotion of a language's embeddings back."""
        with refusals():
            self.project.rollback(embeddings_name(self.project.recipe, language))

    @precondition(lambda self: len(self.marks) < 3)
    @rule()
    def train_another_primary(self) -> None:
        """The source pipeline registers a primary of its own."""
        number, mark = self.project.register_primary(float(len(self.marks) + 1))
        self.project.promote(self.project.primary, number)
        self.marks.append(mark)

    @rule(number=st.integers(1, 4))
    def move_the_alias(self, number: int) -> None:
        """Somebody moves the alias on MLflow's page."""
        client = MlflowClient()
        if any(int(each.version) == number for each in client.search_model_versions(f"name='{self.project.bundle}'")):
            client.set_registered_model_alias(self.project.bundle, tracking.CHAMPION, str(number))
            self.unasked = True

    @rule()
    def publish(self) -> None:
        """Whoever follows the champion looks, as after a restart."""
        with tracking.asking() as ask:
            Champion(ask, self.project.bundle, self.published, "prod", None, keep=3).look()

    @rule(which=st.integers(0, 5), language=st.sampled_from(TARGETS))
    def publish_by_hand(self, which: int, language: str) -> None:
        """Somebody publishes one language of a bundle at hand."""
        bundle = self.bundles[which % len(self.bundles)]
        with refusals():
            publish(bundle, self.published, "somebody", [language])

    @rule(language=st.sampled_from(TARGETS), back=st.booleans())
    def withdraw_by_hand(self, language: str, back: bool) -> None:
        """Somebody takes a language away, or its last publication back, which may come to the same."""
        self.by_hand = {language}
        with refusals():
            (rollback if back else withdraw)(self.published, TASK, language, "somebody")

    @invariant()
    def no_language_leaves_unless_named(self) -> None:
        now = languages_of(Publications(self.published)).get(TASK, set())
        named = self.dropped | self.by_hand
        assert self.served - now <= named, f"{self.served - now} left, and only {named} were named"
        self.served, self.by_hand = now, set()

    def asked(self, named: set[str]) -> None:
        """Look at the champion after a command: of its languages only those that the command named may be gone."""
        with tracking.asking() as ask:
            version = champion_of(ask, self.project.bundle)
        tags = version.tags if version else {}
        now = {SOURCE} & {tags.get("language")} | {
            key.removeprefix("data.embeddings-") for key in tags if key.startswith("data.embeddings-")
        }
        lost = self.champion - now
        assert self.unasked or lost <= named, f"{lost} left the champion, and only {named} were named"
        self.dropped = (self.dropped | (lost & named)) - now
        self.champion, self.unasked = now, False

    def ended(self, language: str, end: str) -> Path | None:
        """What a run hands on to be served: new embeddings, those of the champion, or nothing."""
        if end == "failed":
            return None
        self.count += 1
        value, mark = 100.0 + self.count, self.marks[-1]
        masked = 0.1 + self.count / 100 if end == "accepted" else 0.05
        number = self.project.register_embeddings(mark, value, masked, language=language)
        name = embeddings_name(self.project.recipe, language)
        decided = self.project.promote(name, number)
        if decided.after == number:
            return self.project.folder / f"embeddings-{value}"
        with tracking.asking() as ask:
            champion = champion_of(ask, name)
        if champion is None or champion.tags["aligned_with"] != mark:
            return None
        found = [*self.project.folder.glob("embeddings-*")]
        return next(each for each in found if Artifact.load(each, Kind.EMBEDDINGS).fingerprint == champion.fingerprint)

    def export(self, embeddings: Sequence[Path]) -> Artifact:
        """A bundle of what the last primary has."""
        return self.project.export(self.marks[-1], embeddings)


def explore(examples: int, steps: int) -> None:
    """Try histories of so many steps."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
        phases=[Phase.generate],  # to find the shortest history takes minutes
    )
    run_state_machine_as_test(Production, settings=chosen)


def test_no_language_leaves_production_unless_somebody_named_it() -> None:
    explore(examples=2, steps=12)


@pytest.mark.nightly
def test_no_language_leaves_production_in_many_long_histories() -> None:
    explore(examples=50, steps=30)
