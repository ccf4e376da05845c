"""`lingraft init` writes a recipe that loads, that passes the check, and by which the pipelines run."""

import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lingraft import preflight
from lingraft.cli import main
from lingraft.config.recipe import Recipe
from lingraft.data.text import prepare
from lingraft.data.tokenizer.tokenizer import train_tokenizer
from lingraft.errors import RecipeError
from lingraft.new_recipe import NewRecipe
from lingraft.new_recipe.fitting import ENCODER_PRESETS, GIB, EncoderPreset, Machine, TextAmount, fit_sizes
from lingraft.preflight import NotReadyError, samples
from tests import made_up

DOCUMENTS = 150
SMALL = Machine(cores=2, memory_bytes=8 * GIB)
LARGE = Machine(cores=32, memory_bytes=256 * GIB, gpu="NVIDIA H100 80GB HBM3", gpu_memory_bytes=80 * GIB)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Labelled text in three languages."""
    return made_up.write(tmp_path / "My Text", ("en", "de", "tr"), DOCUMENTS)


def run(*arguments: str, patch: pytest.MonkeyPatch) -> int:
    """The exit code of the command, as a user gives it."""
    patch.setattr(sys, "argv", ["lingraft", "init", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_recipe_loads_and_passes_the_check(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (text / "README.md").write_text("about")
    (text / "faq.txt").write_text("how and why")
    assert run(str(text), patch=monkeypatch) == 0
    recipe = Recipe.load(tmp_path / "recipe.toml")
    assert (recipe.name, recipe.source.language, recipe.targets) == ("my-text", "en", ("de", "tr"))
    [task] = recipe.tasks
    assert (task.kind, task.labels) == ("documents", tuple(sorted(made_up.TOPICS)))
    assert set(task.examples) == {"en", "de", "tr"}
    preflight.require_ready(recipe)
    told = capsys.readouterr().out
    assert "README.md was left out: no language that is known is in its name\n" in told
    assert "faq.txt was left out: no language that is known is in its name\n" in told
    assert told.endswith("Next:\n  python -m pipelines demo --recipe recipe.toml --out my-text-results\n")


def test_the_size_of_text_is_estimated_without_the_json_around_it(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row | {"name": row["name"] * 20, "text": f"{row['text']} ü"} for row in made_up.documents("de", DOCUMENTS)]
    (text / "de.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    characters = sum(len(row["text"]) for row in rows)
    monkeypatch.setattr(samples, "MAX_CHARACTERS", characters // 4)
    made = NewRecipe.of(text, machine=SMALL)
    assert not made.taken["de"].whole
    assert made.characters["de"] == pytest.approx(characters, rel=0.05)


def test_every_line_of_it_is_explained(text: Path) -> None:
    lines = NewRecipe.of(text, machine=SMALL).text.splitlines()
    settings = [line for line in lines if " = " in line and not line.startswith("#")]
    examples = [line for line in settings if line.split(" = ")[0] in ("en", "de", "tr")]
    assert len(settings) > 25
    assert [line for line in settings if line not in examples and "  # " not in line] == []


def test_a_recipe_that_is_there_is_only_replaced_by_force(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.toml"
    out.write_text("mine")
    assert run(str(text), "--out", str(out), patch=monkeypatch) == 1
    assert f"{out} exists already. Choose another --out, or replace it with --force." in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert run(str(text), "--out", str(out), "--force", patch=monkeypatch) == 0
    assert Recipe.load(out).name == "my-text"


def test_files_of_other_names_are_listed_by_language(text: Path) -> None:
    for language in ("en", "de", "tr"):
        (text / f"{language}.jsonl").rename(text / f"pages.{language}.jsonl")
    recipe = NewRecipe.of(text, machine=SMALL).recipe
    assert recipe.text.model_dump()["paths"]["de"] == (str(text / "pages.de.jsonl"),)
    with (text / "pages.de.jsonl").open("a") as stream:
        stream.write("{\n")
    with pytest.raises(NotReadyError, match=r"1 problem was found.*\n.*pages\.de\.jsonl, line 151: not JSON"):
        NewRecipe.of(text, machine=SMALL)


def relabel(text: Path, language: str, change: Callable[[int, dict[str, str]], dict[str, str]]) -> None:
    """Write a language's documents, each changed by its number and content."""
    rows = [change(number, row) for number, row in enumerate(made_up.documents(language, DOCUMENTS))]
    (text / f"{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def unlabelled(_: int, row: dict[str, str]) -> dict[str, str]:
    """A document without its label."""
    return {"text": row["text"]}


@pytest.mark.parametrize(
    ("languages", "change", "reason"),
    [
        (("en", "de", "tr"), unlabelled, "no document has a label"),
        (("en",), unlabelled, "in en, 150 of 150 documents have no label"),
        (("en",), lambda _, row: row | {"label": "moon"}, "the documents in en have fewer than two labels: ['moon']"),
    ],
)
def test_without_labels_of_the_source_there_is_no_task_and_the_recipe_says_why(
    text: Path, languages: Sequence[str], change: Callable[[int, dict[str, str]], dict[str, str]], reason: str
) -> None:
    for language in languages:
        relabel(text, language, change)
    made = NewRecipe.of(text, machine=SMALL)
    assert (made.recipe.tasks, made.recipe.serve_primary) == ((), True)
    assert f"# No task: {reason}" in made.text
    assert reason in made.summary()
    uncommented = made.text.replace("# [[tasks]]", "[[tasks]]").replace('# name = "t', 'name = "t')
    raw = tomllib.loads(uncommented.replace('# kind = "documents"', 'kind = "documents"'))
    assert Recipe.parse(raw).tasks[0].name == "topic"


def test_documents_without_a_label_are_counted(text: Path) -> None:
    relabel(text, "en", lambda number, row: row if number % 3 else unlabelled(number, row))
    assert (
        f"task      none: in en, 50 of 150 documents have no label (the first: {text / 'en.jsonl'}, line 1), and a "
        "task is learned from the source's labels. Label or remove them, and run this again\n"
    ) in NewRecipe.of(text, machine=SMALL).summary()


def test_a_task_is_learned_for_targets_without_labels_and_judged_where_there_are_some(text: Path) -> None:
    relabel(text, "tr", unlabelled)
    made = NewRecipe.of(text, machine=SMALL)
    [task] = made.recipe.tasks
    assert (task.languages, set(task.examples)) == (("en", "de"), {"en", "de", "tr"})
    assert "not judged in tr: 150 of 150 documents have no label" in made.summary()
    relabel(text, "de", lambda _, row: row | {"label": "moon"})
    made = NewRecipe.of(text, machine=SMALL)
    assert made.recipe.task().languages == ("en",)
    assert "not judged in de: it has labels that en does not have: ['moon']" in made.summary()


def test_an_example_fits_the_model_also_where_a_character_is_a_token(text: Path) -> None:
    rows = [row | {"text": f"{'字' * 90}\n{row['text']}"} for row in made_up.documents("de", DOCUMENTS)]
    (text / "de.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = NewRecipe.of(text, machine=SMALL).recipe
    [task] = recipe.tasks
    assert len(str(task.examples["de"])) < recipe.primary_shape.block_tokens


def test_the_source_is_english_or_the_most_or_what_is_asked_for(text: Path) -> None:
    assert NewRecipe.of(text, source="tr", machine=SMALL).recipe.targets == ("de", "en")
    (text / "en.jsonl").unlink()
    made_up.write(text, ("de",), count=400)
    assert NewRecipe.of(text, machine=SMALL).source == "de"
    with pytest.raises(RecipeError, match=r"--source 'fr' has no text in .*, which has \['de', 'tr'\]"):
        NewRecipe.of(text, source="fr", machine=SMALL)


def test_the_vocabulary_is_one_that_every_text_supports(text: Path, tmp_path: Path) -> None:
    recipe = NewRecipe.of(text, machine=SMALL).recipe
    for language in recipe.languages:
        prepared = prepare(recipe, language, tmp_path / "prepared" / language)
        assert train_tokenizer(recipe, prepared.folder, tmp_path / "pieces" / language).manifest.language == language


def test_little_text_gets_short_blocks_and_few_pieces(tmp_path: Path) -> None:
    made_up.write(tmp_path / "text", ("en", "de"), count=25)
    recipe = NewRecipe.of(tmp_path / "text", machine=SMALL).recipe
    assert recipe.tokenizer.vocabulary < 500
    with pytest.raises(NotReadyError, match="leave"):
        NewRecipe.of(made_up.write(tmp_path / "text", ("en", "de"), count=2), machine=SMALL)


def test_sizes_follow_text_machine_and_time() -> None:
    def width(megacharacters: float, machine: Machine, hours: float) -> int:
        count = megacharacters * 1e6
        return fit_sizes(TextAmount({"en": count, "de": count}, "en", 100), machine, hours).shape.width

    widths = [shape.width for shape in ENCODER_PRESETS]
    assert width(3, SMALL, 0.5) == widths[0]
    assert width(3, LARGE, 10) == widths[0]  # too little text for more
    assert width(100_000, SMALL, 0.5) == widths[0]  # too little time
    assert width(100_000, LARGE, 100) == widths[-1]
    grown = [width(100_000, LARGE, hours) for hours in (0.01, 0.1, 1, 10, 100)]
    assert grown == sorted(grown)


@pytest.mark.parametrize("preset", ENCODER_PRESETS, ids=lambda preset: str(preset.width))
def test_presets_are_modern_and_their_mini_model_and_primary_end_with_the_whole_block(preset: EncoderPreset) -> None:
    pre_norm = preset.encoder.family.pre_norm
    assert pre_norm
    for head in (preset.mlm_heads[0], preset.layers):
        assert (head - 1) % pre_norm.global_every == 0 or preset.block_tokens <= pre_norm.reach


def test_a_gpu_whose_memory_is_small_gets_micro_batches() -> None:
    tight = Machine(cores=8, memory_bytes=64 * GIB, gpu="a GPU", gpu_memory_bytes=16 * GIB)
    fitted = fit_sizes(TextAmount({"en": 1e11, "de": 1e11}, "en", 100), tight, 1000)
    assert fitted.shape is ENCODER_PRESETS[-1]
    assert fitted.micro_batch_blocks
    assert fitted.batch_blocks % fitted.micro_batch_blocks == 0


def test_an_example_is_the_beginning_of_a_line_where_all_lines_are_too_long(tmp_path: Path) -> None:
    sentences = {
        "en": ("The ship is in the harbour. ", "We saw it there today. "),
        "ja": ("船は港の近くで待っていますよね。", "夕方にパンを料理します。"),
    }
    for language, (first, second) in sentences.items():
        rows = [{"text": f"{number} {first}{second * 5}", "label": "ab"[number % 2]} for number in range(200)]
        (tmp_path / f"{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    examples = NewRecipe.of(tmp_path, machine=SMALL).recipe.task().examples
    assert str(examples["en"]).endswith("The ship is in the harbour. We saw it there today.")
    assert str(examples["ja"]).endswith("夕方にパンを料理します。")
