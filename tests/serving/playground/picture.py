"""`make picture`: the playground as the documentation shows it, with tiny models trained on short texts."""

import sys
import tempfile
import tomllib
from pathlib import Path

import matplotlib.image

from lingraft.config.recipe import Recipe
from lingraft.data import blocks, text
from lingraft.data.tokenizer import tokenizer
from lingraft.export import export_bundle as export
from lingraft.serving.client import run_server
from lingraft.stages import finetune, pretrain
from lingraft.stages.adapt import adapt
from lingraft.training.schedule import ignore_metrics
from tests.reports.run.browser import new_page, running_chromium
from tests.serving.playground.browsing import answered
from tests.serving.playground.short_texts import LANGUAGES, sentence, write

TINY = Path(__file__).parents[2] / "tiny.toml"
WIDTH, HEIGHT = 1280, 400
READY_S = 600
EXAMPLES = {"en": ("kitchen", 1, 0, 0), "de": ("harbour", 1, 3, 1), "tr": ("garden", 0, 1, 2)}


def recipe_on(folder: Path) -> Recipe:
    """A project on the short texts under a folder."""
    settings = tomllib.loads(TINY.read_text("utf-8"))
    settings["tokenizer"]["vocabulary"] = 250
    settings["adaptation"] |= {"steps": 1, "learning_rate": 1e-6}
    [task] = settings["tasks"]
    task["finetuning"] = {"epochs": 16, "batch_examples": 16, "learning_rate": 4e-3, "seeds": [1]}
    task["examples"] = {
        language: sentence(topic, language, *numbers) for language, (topic, *numbers) in EXAMPLES.items()
    }
    return Recipe.model_validate(settings).with_folder(write(folder / "source"))


def model(folder: Path) -> Path:
    """A bundle that finds the topic of a text in three languages, trained under a folder."""
    recipe, embeddings = recipe_on(folder), []
    pieces = {language: folder / "tokenizer" / language for language in LANGUAGES}
    packed = {language: folder / "blocks" / language for language in LANGUAGES}
    for language in LANGUAGES:
        prepared = folder / "text" / language
        text.prepare(recipe, language, prepared)
        tokenizer.train_tokenizer(recipe, prepared, pieces[language])
        blocks.build(recipe, prepared, pieces[language], packed[language])
    primary, task = folder / "primary", folder / "task"
    pretrain.pretrain(recipe, packed["en"], pieces["en"], primary, ignore_metrics)
    for language in recipe.targets:
        embeddings.append(folder / "embeddings" / language)
        depth = recipe.adaptation.depth
        adapt(recipe, primary, packed[language], pieces[language], depth, embeddings[-1], ignore_metrics)
    finetune.finetune(recipe, recipe.task().name, primary, folder / "text" / "en", 1, task, ignore_metrics)
    return export(primary, task, embeddings, folder / "bundle").folder


def take(path: Path) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        with run_server([model(place)], READY_S) as server, running_chromium(place) as port, new_page(port) as page:
            page.view(WIDTH, HEIGHT, phone=False, scheme="light")
            page.visit(f"{server.url}/ui")
            page.wait("question.checkVisibility()")
            page.evaluate("ask.click()")
            answered(page)
            matplotlib.image.imsave(path, page.screenshot(), pil_kwargs={"optimize": True})


if __name__ == "__main__":
    take(Path(sys.argv[1]))
