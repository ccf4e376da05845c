"""Recipes on folders of text, changes to single lines, and the list of problems that a check tells."""

from pathlib import Path
from typing import Any

import pytest

from lingraft import preflight
from lingraft.config.recipe import Recipe
from lingraft.preflight import NotReadyError
from tests.text_recipe import text_recipe


def recipe_on(folder: Path, **changes: Any) -> Recipe:
    """English and German in a folder, of which `text_recipe` says the rest."""
    return text_recipe({"kind": "folder", "path": str(folder)}, **changes)


def refusal(recipe: Recipe, out: Path | None = None) -> list[str]:
    """The lines of the list of problems, without their numbers."""
    with pytest.raises(NotReadyError) as caught:
        preflight.require_ready(recipe, out)
    head, *lines = str(caught.value).splitlines()
    assert int(head.split(" problem")[0].replace(",", "")) >= len(lines)
    assert [line.split(".")[0] for line in lines] == [f"  {number}" for number in range(1, len(lines) + 1)]
    return [line.split(". ", 1)[1] for line in lines]


def change(file: Path, line: int, text: str) -> None:
    """Replace a line, counted from 1."""
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[line - 1] = text
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
