"""A recipe for a folder of text: an annotated template, in which what the folder holds is filled in."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from string import Template

from lingraft import preflight
from lingraft.config.text import Folder, Split
from lingraft.console import say
from lingraft.data.documents import FORMATS
from lingraft.data.languages import canonical_code
from lingraft.data.lines import COMPRESSIONS
from lingraft.errors import RecipeError
from lingraft.preflight import Sample

_FOLDER = Path(__file__).with_name("templates")
_LABELLED = "[[tasks]]  # learned from the source's labels"
"""Where the part of a template begins that is left out without labels."""
_TAG = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_EXAMPLE_CHARACTERS = range(15, 60)
"""Length of a text to ask the endpoint about: in some languages each character is a token."""


def new_recipe(folder: Path, template: str, source: str, name: str, model: str) -> str:
    """Return a recipe as TOML.

    Args:
        folder: one file or folder of text for each language, named after it.
        template: name of the template, such as "scratch".
        source: source language; the others are targets.
        name: name of the project; that of the folder if empty.
        model: model that template `search` begins with.

    Raises:
        RecipeError: there is no such template or folder, or no text in the source or in a target.
    """
    templates = {path.stem: path for path in sorted(_FOLDER.iterdir())}
    if template not in templates:
        raise RecipeError(f"there is no template {template!r}. Choose one of {[*templates]}.")
    languages = _languages_in(folder)
    if source not in languages or len(languages) < 2:
        raise RecipeError(
            f"{folder} has text in {languages} by the names of its files and folders; a project needs {source!r} "
            "(--source) and another language. Name each file or folder after its language: en.jsonl, de.txt.gz, sw/."
        )
    targets = [language for language in languages if language != source]
    text = templates[template].read_text(encoding="utf-8")
    values: dict[str, object] = {
        "name": re.sub(r"[^a-z0-9]+", "-", (name or folder.resolve().name).lower()).strip("-") or "my-project",
        "source": source,
        "targets": targets,
        "path": str(folder.resolve()),
        "model": model,
    }
    filled = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    if _LABELLED in text:
        place = Folder(kind="folder", path=str(folder))
        samples = {language: preflight.read_text(place, Split(), language) for language in (source, *targets)}
        labelled = [tag for tag, each in samples.items() if any(each.labels.values()) and not each.unlabelled]
        if source not in labelled:
            say(f"The recipe has no task to learn: not every document in {source!r} has a label.")
            text = text.partition(_LABELLED)[0].rstrip() + "\n"
        examples = {tag: found for tag, each in samples.items() if (found := _example(each))}
        filled["serve_primary"] = json.dumps(source not in labelled)
        filled["labelled"] = json.dumps(labelled)
        filled["examples"] = "\n".join(
            f"{tag} = {json.dumps(said, ensure_ascii=False)}" for tag, said in examples.items()
        )
    return Template(text).substitute(filled)


def _languages_in(folder: Path) -> list[str]:
    """Return the tags that files and folders are named after, of languages that the Unicode CLDR knows."""
    if not folder.is_dir():
        raise RecipeError(f"{folder} is no folder. Give one with a file or folder of text for each language.")
    names = (path.name for path in folder.iterdir())
    stems = {_without(_without(name, COMPRESSIONS), FORMATS) for name in names}
    return sorted(stem for stem in stems if _TAG.fullmatch(stem) and canonical_code(stem.partition("-")[0]))


def _without(name: str, suffixes: Iterable[str]) -> str:
    return next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)


def _example(sample: Sample) -> str:
    """Return a line of the test documents that is neither short nor long; empty if there is none."""
    lines = (line.strip() for text in sample.texts["test"] for line in text.splitlines())
    return next((line for line in lines if len(line) in _EXAMPLE_CHARACTERS and line.isprintable()), "")
