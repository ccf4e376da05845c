"""No language leaves production unless somebody named it: random runs, failures, refusals and rollbacks.

The registry is a real store. Bundles and embeddings are small artifacts of a few numbers: what they compute is not what
this is about.
"""

import contextlib
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import embeddings_name
from lingraft.errors import ArtifactError, NotRegisteredError, PromotionError
from lingraft.tracking.bundles import renew_bundle
from lingraft.tracking.promotion import AllowedChanges, languages_of
from lingraft.tracking.versions import version_by_alias
from tests.tracking.promotion.prepared import Prepared, opened
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = quiet
TASK, SOURCE = "topic", "en"
TARGETS = ("de", "el", "tr")


def refusals() -> contextlib.suppress:
    return contextlib.suppress(PromotionError, ArtifactError, NotRegisteredError)


ENDINGS = ("accepted", "accepted", "refused", "failed")


class Production(contextlib.ExitStack):
    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw
        folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        self.project: Project = self.enter_context(opened(Prepared.LEARNED, folder / "store"))
        self.marks = [self.project.mark]
        self.count, self.bundles = 0, 0
        begun = enumerate(TARGETS, start=11)
        self.learned = {language: self.project.folder / f"embeddings-{value}.0" for value, language in begun}
        """Embeddings that the gate has accepted last, by language."""
        self.champion: set[str] = set()

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
            renew_bundle(
                stage=stage,
                name=self.project.bundle,
                primary=self.marks[-1],
                brought=brought,
                make=self.export,
                tags={},
                allowed=allowed,
                asked_by="a run",
            )
        self.bundles += 1
        self.asked(named)

    def bring_a_smaller_bundle(self) -> None:
        languages = self.draw.sample(TARGETS, self.draw.randint(0, 2))
        made = self.export([each for language, each in self.learned.items() if language in languages])
        number = self.project.register(self.project.bundle, made)
        self.bundles += 1
        if self.draw.random() < 0.5:
            self.promote(number, self.named())

    def promote_another(self) -> None:
        self.promote(self.draw.randint(1, self.bundles), self.named())

    def promote(self, number: int, named: set[str]) -> None:
        with refusals():
            self.project.promote(self.project.bundle, number, drop_languages=tuple(named))
        self.asked(named)

    def roll_back(self) -> None:
        named = self.named()
        with refusals():
            self.project.roll_back(self.project.bundle, drop_languages=tuple(named))
        self.asked(named)

    def roll_embeddings_back(self) -> None:
        with refusals():
            self.project.roll_back(embeddings_name(self.project.recipe, self.language()))

    def train_another_primary(self) -> None:
        number, mark = self.project.register_primary(float(len(self.marks) + 1))
        self.project.promote(self.project.primary, number)
        self.marks.append(mark)

    def asked(self, named: set[str]) -> None:
        """Look at the champion after a command: of its languages only those that the command named may be gone."""
        now = {*languages_of(version_by_alias(tracking.connect(), self.project.bundle))}
        lost = self.champion - now
        assert lost <= named, f"{lost} left the champion, and only {named} were named"
        self.champion = now

    def ended(self, language: str, end: str) -> Path | None:
        """What a run hands on to be served: new embeddings, those of the champion, or nothing."""
        if end == "failed":
            return None
        self.count += 1
        value, mark = 100.0 + self.count, self.marks[-1]
        masked = 0.35 + self.count / 100 if end == "accepted" else 0.05
        number = self.project.register_embeddings(mark, value, masked, language=language)
        name = embeddings_name(self.project.recipe, language)
        if self.project.promote(name, number).passed:
            self.learned[language] = self.project.folder / f"embeddings-{value}"
            return self.project.folder / f"embeddings-{value}"
        champion = version_by_alias(tracking.connect(), name)
        if champion is None or champion.primary != mark:
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
}
"""What may come next, and how often."""


def explore(seed: int, steps: int) -> None:
    """Go through a history of so many steps; `asked` looks at production after each command."""
    draw = random.Random(seed)
    with Production(draw) as production:
        production.bring(production.learned, set(), new_primary=False)
        assert production.champion == {SOURCE, *TARGETS}
        for step in draw.choices([*STEPS], [*STEPS.values()], k=steps):
            step(production)


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 4), *(pytest.param(seed, 30, marks=pytest.mark.nightly) for seed in range(1, 9))]
)
def test_no_language_leaves_production_unless_somebody_named_it(seed: int, steps: int) -> None:
    explore(seed, steps)
