"""German whose tokenizer borrows the source's pieces, and embeddings of it."""

from pathlib import Path
from typing import NamedTuple, Self

from lingraft.config.recipe import Recipe
from lingraft.data import blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.training import train_tokenizer
from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings, load_primary
from lingraft.stages.adapt import adapt
from lingraft.training.schedule import ignore_metrics
from tests.fixtures import once
from tests.workshop import Workshop, changed


class Borrowing(NamedTuple):
    """Folders of German's tokenizer, blocks and embeddings, for the workshop's primary."""

    recipe: Recipe
    primary: Path
    tokenizer: Path
    blocks: Path
    embeddings: Path

    @classmethod
    def shared(cls) -> Self:
        """Those of this run of the tests."""
        shop = Workshop.shared()
        recipe = changed(changed(shop.recipe, "tokenizer", borrow=True), "adaptation", steps=8)

        def made(folder: Path) -> Self:
            return cls(recipe, shop.primary, *(folder / name for name in ("tokenizer", "blocks", "embeddings")))

        def make(folder: Path) -> None:
            to = made(folder)
            train_tokenizer(recipe, shop.texts["de"], to.tokenizer, shop.primary)
            blocks.build(recipe, shop.texts["de"], to.tokenizer, to.blocks)
            adapt(recipe, shop.primary, to.blocks, to.tokenizer, 1, to.embeddings, ignore_metrics)

        return made(once.folder("borrowing", make, recipe.to_json()))

    def loaded(self) -> tuple[LoadedPrimary, Embeddings]:
        """The primary and the embeddings, to which it has lent its rows."""
        primary, learned = load_primary(self.primary), load_embeddings(self.embeddings)
        primary.lend_to(learned)
        return primary, learned

    def name(self) -> tuple[str, int, int]:
        """A name that only the source has a piece for, its id in German, and the source's."""
        pieces = Tokenizer.load(self.tokenizer)
        own = len(pieces.own)
        found = ((index, each) for index, each in enumerate(pieces.surfaces()) if index >= own and each)
        index, surface = max(
            ((index, each) for index, each in found if each.initial and each.text.isalpha()),
            key=lambda item: len(item[1].text),
        )
        return surface.text, index, int(pieces.borrowed_B[index - own])
