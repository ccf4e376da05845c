"""What the tests of the language lane are given: text under odd names, and primaries of other kinds."""

from pathlib import Path

from lingraft import Wanted
from lingraft.new_language.summary import AddedLanguage
from lingraft.stages import build_mini
from lingraft.training.schedule import ignore_metrics
from tests import made_up, tiny
from tests.workshop import Workshop

RECIPE = Path(__file__).parents[1] / "tiny.toml"
BRIEFLY = Wanted(steps=4, batch_blocks=8)


def out_of(added: AddedLanguage) -> Path:
    return added.embeddings.parent


def plain_text(folder: Path, language: str, count: int = 200) -> Path:
    file = folder / f"{language} text.txt"
    file.write_text("\n\n".join(document["text"] for document in made_up.documents(language, count)))
    return file


def one_head(workshop: Workshop, folder: Path) -> Path:
    shape = workshop.recipe.encoder.model_copy(update={"mlm_heads": (3,)})
    recipe = workshop.recipe.model_copy(update={"encoder": shape})
    return tiny.write_primary(recipe, workshop.tokenizers["en"], folder / "primary", seed=1)


def mini_of(workshop: Workshop, primary: Path, out: Path) -> Path:
    """MINIPOST's mini-model of a primary with one head: 1 layer of its, and 2 fresh ones."""
    training = workshop.recipe.pretraining.model_dump() | {"steps": 2, "warmup_steps": 0}
    raw = workshop.recipe.model_dump(mode="json") | {"system": "MINIPOST", "search": None, "mini": training}
    build_mini.build_mini(workshop.recipe.parse(raw), primary, workshop.blocks["en"], out, ignore_metrics)
    return out


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    found = {path.relative_to(folder).as_posix(): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}
