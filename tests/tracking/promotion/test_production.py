"""No language leaves production unless somebody named it: random runs, failures, refusals, rollbacks and publications.

The registry is a real store, and so are the folder of publications and whoever follows the champion. Bundles and
embeddings are small artifacts of a few numbers: what they compute is not what this is about.
"""

import contextlib
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import embeddings_name
from lingraft.errors import ArtifactError, NotRegisteredError, PromotionError, PublicationError
from lingraft.serving.publishing.publications import Publications
from lingraft.serving.publishing.publish import publish, rollback, served_languages, withdraw
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.bundle_gate import AllowedChanges
from lingraft.tracking.promotion.champion import ChampionFollower
from lingraft.tracking.promotion.decisions import recorded_champion
from lingraft.tracking.promotion.renewal import renew
from lingraft.tracking.versions import champion_of
from tests.tracking.promotion.prepared import Prepared, opened
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = quiet
TASK, SOURCE = "topic", "en"
TARGETS = ("de", "el", "tr")


def refusals() -> contextlib.suppress:
    return contextlib.suppress(PromotionError, PublicationError, ArtifactError, NotRegisteredError)


ENDINGS = ("accepted", "accepted", "refused", "failed")


class Production(contextlib.ExitStack):
    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw
        folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        self.project: Project = self.enter_context(opened(Prepared.LEARNED, folder / "store"))
        self.marks = [self.project.mark]
        self.published, self.count = folder / "published", 0
        self.published.mkdir()
        self.bundles: list[Path] = []
        begun = enumerate(TARGETS, start=11)
        self.learned = {language: self.project.folder / f"embeddings-{value}.0" for value, language in begun}
        """Embeddings that the gate has accepted last, by language."""
        self.served: set[str] = set()
        self.dropped: set[str] = set()
        """Languages that have left the champion because a command named them, and are not back in it."""
        self.by_hand: set[str] = set()
        """The language that the last command took away from the endpoint alone."""
        self.champion: set[str] = set()
        self.unasked: int | None = None
        """The version to which somebody has moved the alias past lingraft."""

    def named(self) -> set[str]:
        return set(self.draw.sample((SOURCE, *TARGETS), self.draw.choice((0, 0, 0, 1, 2))))

    def language(self) -> str:
        return self.draw.choice(TARGETS)

    def some_languages_are_run(self) -> None:
        chosen = self.draw.sample(TARGETS, self.draw.choice((1, 1, 2)))
        endings = {language: self.draw.choice(ENDINGS) for language in chosen}
        named, new_primary = self.named(), self.draw.random() < 0.5
        brought = {language: folder for language, end in endings.items() if (folder := self.ended(language, end))}
        if brought:
            self.bring(brought, named, new_primary)

    def bring(self, brought: Mapping[str, Path], named: set[str], new_primary: bool) -> None:
        allowed = AllowedChanges(drop_languages=tuple(sorted(named)), new_primary=new_primary)
        with tracking.stage(self.project.run, "bundle-topic") as stage:
            made = renew(
                stage=stage,
                name=self.project.bundle,
                primary=self.marks[-1],
                brought=brought,
                make=self.export,
                tags={},
                allowed=allowed,
                asked_by="a run",
            )
        self.bundles.append(made.made.folder)
        self.asked(named)

    def bring_a_smaller_bundle(self) -> None:
        languages = self.draw.sample(TARGETS, self.draw.randint(0, 2))
        made = self.export([each for language, each in self.learned.items() if language in languages])
        number = self.project.register(self.project.bundle, made)
        self.bundles.append(made.folder)
        if self.draw.random() < 0.5:
            self.promote(number, self.named())

    def promote_another(self) -> None:
        self.promote(self.draw.randint(1, len(self.bundles)), self.named())

    def promote(self, number: int, named: set[str]) -> None:
        with refusals():
            self.project.promote(self.project.bundle, number, drop_languages=tuple(named))
        self.asked(named)

    def roll_back(self) -> None:
        named = self.named()
        with refusals():
            self.project.rollback(self.project.bundle, drop_languages=tuple(named))
        self.asked(named)

    def roll_embeddings_back(self) -> None:
        with refusals():
            self.project.rollback(embeddings_name(self.project.recipe, self.language()))

    def train_another_primary(self) -> None:
        number, mark = self.project.register_primary(float(len(self.marks) + 1))
        self.project.promote(self.project.primary, number)
        self.marks.append(mark)

    def move_the_alias(self) -> None:
        """Somebody moves the alias on MLflow's page, so that not even the record of decisions knows."""
        numbers = [each.version for each in MlflowClient().search_model_versions(f"name='{self.project.bundle}'")]
        number = str(self.draw.choice(numbers))
        MlflowClient().set_registered_model_alias(self.project.bundle, tracking.CHAMPION, number)
        self.unasked = int(number)
        self.publish()

    def publish(self) -> None:
        with tracking.retrying_client() as client:
            ChampionFollower(client, self.project.bundle, self.published, "prod", None, keep=3).poll()

    def publish_by_hand(self) -> None:
        with refusals():
            publish(self.draw.choice(self.bundles), self.published, "somebody", [self.language()])

    def withdraw_by_hand(self) -> None:
        """Somebody takes a language away, or its last publication back, which may come to the same."""
        language = self.language()
        self.by_hand = {language}
        with refusals():
            self.draw.choice((rollback, withdraw))(self.published, TASK, language, "somebody")

    def no_language_leaves_unless_named(self) -> None:
        now = served_languages(Publications(self.published)).get(TASK, set())
        named = self.dropped | self.by_hand
        assert self.served - now <= named, f"{self.served - now} left, and only {named} were named"
        self.served, self.by_hand = now, set()

    def asked(self, named: set[str]) -> None:
        """Look at the champion after a command: of its languages only those that the command named may be gone."""
        with tracking.retrying_client() as client:
            version = champion_of(client, self.project.bundle)
            records = decisions.history(client, self.project.recipe.name, self.project.bundle)
        if version and version.number == self.unasked and not recorded_champion([version], records):
            return self.publish()  # no command has changed anything since
        tags = version.tags if version else {}
        now = {SOURCE} & {tags.get("language")} | {
            key.removeprefix("data.embeddings-") for key in tags if key.startswith("data.embeddings-")
        }
        lost = self.champion - now
        assert lost <= named, f"{lost} left the champion, and only {named} were named"
        self.dropped = (self.dropped | (lost & named)) - now
        self.champion, self.unasked = now, None
        return self.publish()

    def ended(self, language: str, end: str) -> Path | None:
        """What a run hands on to be served: new embeddings, those of the champion, or nothing."""
        if end == "failed":
            return None
        self.count += 1
        value, mark = 100.0 + self.count, self.marks[-1]
        masked = 0.35 + self.count / 100 if end == "accepted" else 0.05
        number = self.project.register_embeddings(mark, value, masked, language=language)
        name = embeddings_name(self.project.recipe, language)
        decided = self.project.promote(name, number)
        if decided.after == number:
            self.learned[language] = self.project.folder / f"embeddings-{value}"
            return self.project.folder / f"embeddings-{value}"
        with tracking.retrying_client() as client:
            champion = champion_of(client, name)
        if champion is None or champion.tags["aligned_with"] != mark:
            return None
        found = [*self.project.folder.glob("embeddings-*")]
        return next(each for each in found if Artifact.load(each, Kind.EMBEDDINGS).fingerprint == champion.fingerprint)

    def export(self, embeddings: Sequence[Path]) -> Artifact:
        return self.project.export(self.marks[-1], embeddings)


STEPS: dict[Callable[[Production], None], int] = {
    Production.some_languages_are_run: 4,
    Production.bring_a_smaller_bundle: 3,
    Production.promote_another: 4,
    Production.roll_back: 3,
    Production.roll_embeddings_back: 1,
    Production.train_another_primary: 1,
    Production.move_the_alias: 2,
    Production.publish_by_hand: 2,
    Production.withdraw_by_hand: 1,
}
"""What may come next, and how often."""


def explore(seed: int, steps: int) -> None:
    """Go through a history of so many steps, and look at production after each."""
    draw = random.Random(seed)
    with Production(draw) as production:
        production.bring(production.learned, set(), new_primary=False)
        production.no_language_leaves_unless_named()
        assert production.served == {SOURCE, *TARGETS}
        for step in draw.choices([*STEPS], [*STEPS.values()], k=steps):
            step(production)
            production.no_language_leaves_unless_named()


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 4), *(pytest.param(seed, 30, marks=pytest.mark.nightly) for seed in range(1, 9))]
)
def test_no_language_leaves_production_unless_somebody_named_it(seed: int, steps: int) -> None:
    explore(seed, steps)


def test_who_dropped_a_language_is_said_before_it_is_withdrawn_and_nobody_s_alias_withdraws_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Production(random.Random(0)) as production:
        project = production.project
        production.bring(production.learned, set(), new_primary=False)
        number = project.register(project.bundle, production.export([production.learned["de"]]))
        MlflowClient().set_registered_model_alias(project.bundle, tracking.CHAMPION, str(number))
        capfd.readouterr()
        production.publish()
        said = capfd.readouterr().err
        assert f"version {number} of 'tiny-bundle-topic' has no 'el', but nobody has dropped it by name" in said
        assert "withdraw topic el` takes it away" in said
        assert served_languages(Publications(production.published)) == {TASK: {SOURCE, *TARGETS}}
        assert tracking.tags_of(project.bundle)["endpoint.prod"].startswith("published")

        project.promote(project.bundle, 1)
        production.publish()
        project.promote(project.bundle, number, by="alice", drop_languages=("el", "tr"))
        capfd.readouterr()
        production.publish()
        lines = capfd.readouterr().err.splitlines()
        announced = [
            place for place, line in enumerate(lines) if "of topic will be withdrawn: alice dropped it" in line
        ]
        carried_out = [place for place, line in enumerate(lines) if ": withdraw, " in line]
        assert (len(announced), len(carried_out)) == (2, 2)
        assert max(announced) < min(carried_out)
        assert served_languages(Publications(production.published)) == {TASK: {SOURCE, "de"}}
