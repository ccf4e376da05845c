"""`make picture`: the playground as the documentation shows it, asked for the masks of made-up texts.

Its models have random weights, and its Arabic is the tests' made-up syllables in Arabic letters.
"""

import json
import sys
import tempfile
from pathlib import Path

import matplotlib.image

from lingraft.config import Recipe
from lingraft.export import bundle as export
from lingraft.serving.ask import running
from tests.made_up import documents, write
from tests.report.browser import new_page, running_chromium
from tests.serving.playground.browsing import ask, choose
from tests.tiny import Pieces, Tiny

TINY = Path(__file__).parents[2] / "tiny.toml"
LETTERS = str.maketrans("bdklmnprstvzaeiou", "بدكلمنفرستوزايييو")
WORDS = 6
WIDTH, HEIGHT = 1280, 400
READY_S = 600


def models(folder: Path) -> list[Path]:
    """Bundles of a task and of its primary, in three languages."""
    recipe = Recipe.load(TINY).model_copy(update={"targets": ("ar", "de")})
    source = write(folder / "source", recipe.languages)
    arabic = [made | {"text": made["text"].translate(LETTERS)} for made in documents("ar", 300)]
    (source / "ar.jsonl").write_text("".join(json.dumps(made) + "\n" for made in arabic), encoding="utf-8")
    pieces = Pieces.trained(recipe.with_folder(source), folder)
    tiny = Tiny.make(pieces.recipe, pieces.tokenizers, folder / "tiny")
    found = {"topic": tiny.task, "primary": None}
    for name, task in found.items():
        export(tiny.primary, task, [*tiny.embeddings.values()], folder / name)
    return [folder / name for name in found]


def masked(language: str) -> str:
    """A text with a mask in it."""
    words = documents(language, 1)[0]["text"].split()[:WORDS]
    words[WORDS // 2] = "<mask>"
    return " ".join(word if word == "<mask>" or language != "ar" else word.translate(LETTERS) for word in words)


def take(path: Path) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        with running(models(place), READY_S) as server, running_chromium(place) as port, new_page(port) as page:
            page.view(WIDTH, HEIGHT, phone=False, scheme="light")
            page.visit(f"{server.url}/ui")
            page.wait("question.checkVisibility()")
            choose(page, "fill-mask", ("ar", "de", "en"))
            ask(page, {f"text-{language}": masked(language) for language in ("ar", "de", "en")})
            matplotlib.image.imsave(path, page.screenshot(), pil_kwargs={"optimize": True})


if __name__ == "__main__":
    take(Path(sys.argv[1]))
