"""`lingraft cost`: the paper's figures as a table and as JSON, and errors that say what to do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lingraft.cli.project import cost
from lingraft.errors import LingraftError

RECIPE = Path(__file__).parent / "section3.toml"
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(cost)


def table(*arguments: str, recipe: Path = RECIPE) -> str:
    done = CliRunner().invoke(app, ["--recipe", str(recipe), *arguments])
    if isinstance(done.exception, LingraftError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def machine(*arguments: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(table("--json", *arguments))
    return read


def rows(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_the_table_shows_the_papers_figures() -> None:
    text = table()
    assert "V100: 24.0% (the paper's) of a peak of 125 TFLOP/s, so 30 TFLOP/s\n" in text
    assert "money" not in text.lower()
    found = rows(text)
    for row in (
        ["BL_BASE", "pretraining", "12", "1", "A1", "125,000", "78.82", "30.41"],
        ["adaptation, each language", "12", "1", "A3", "125,000", "54.05", "20.85"],
        ["BL_SMALL", "pretraining", "4", "1", "A1", "125,000", "29.34", "11.32"],
        ["adaptation, each language", "4", "1", "A3", "125,000", "21.07", "8.13"],
        ["MINIJOINT", "pretraining", "12", "2", "A1", "125,000", "83.42", "32.18"],
        ["step 1b", "6", "1", "A4", "125,000", "21.62", "8.34"],
        ["adaptation, each language", "6", "1", "A3", "125,000", "29.32", "11.31"],
        ["total, 1 language", "104.48", "40.31"],
        ["total, 14 languages", "378.38", "145.98"],
        ["MINIJOINT", "4", "967.45", "3,503.52", "3,503.52"],
    ):
        assert row in found
    assert [row[0] for row in found].count("adaptation, each language") == 4


def test_hours_and_money_follow_the_accelerator() -> None:
    """100 TFLOP/s at a half are 0.18 EFLOPs an hour; MINIJOINT's first language takes 104.48 of these."""
    text = table("--accelerator", "mine:100", "--utilisation", "0.5", "--price", "2", "--languages", "1")
    assert "mine: 50.0% (given) of a peak of 100 TFLOP/s, so 50 TFLOP/s; 2.00 an hour" in text
    assert ["MINIJOINT", "4", "580.47", "1,160.94", "580.47", "1,160.94"] in rows(text)


def durations(*arguments: str) -> dict[str, dict[str, float]]:
    (accelerator,) = machine(*arguments)["accelerators"]
    return {each["system"]: each for each in accelerator["systems"]}


def test_pretraining_comes_first_and_then_the_languages_side_by_side() -> None:
    """Of 14 languages, 6 of 8 accelerators get two and 2 get one: two rounds, in which two accelerators idle once."""
    post = durations("--gpus", "8", "--accelerator", "V100:::2")["MINIPOST"]
    assert post["makespan_hours"] / 24 == pytest.approx(30.41 + 8.34 + 2 * 11.31, abs=0.02)
    assert post["rented_hours"] / 24 == pytest.approx(30.41 + 8.34 + 8 * 2 * 11.31, abs=0.1)
    assert post["rented_money"] == pytest.approx(2 * post["rented_hours"])
    assert "on 8 GPUs, hours until done" in table("--gpus", "8")


def test_accelerators_beyond_the_jobs_are_not_rented_however_many() -> None:
    few, many = (
        durations("--gpus", gpus, "--languages", "3", "--system", "BL_SMALL")["BL_SMALL"] for gpus in ("3", "100000000")
    )
    assert (few["makespan_hours"], few["rented_hours"]) == (many["makespan_hours"], many["rented_hours"])


def test_the_longest_jobs_go_first_and_finetuning_is_one_for_each_seed() -> None:
    arguments = ("--examples", "topic=400000", "--system", "BL_SMALL")
    one, three = (durations("--gpus", gpus, *arguments)["BL_SMALL"] for gpus in ("1", "3"))
    assert one["makespan_hours"] == one["rented_hours"] == pytest.approx(one["hours"])
    # 14 languages make 5 rounds; the 5 short finetunings fit beside the last language of a GPU that has 4.
    assert three["makespan_hours"] / 24 == pytest.approx(11.32 + 5 * 8.13, abs=0.02)
    assert "finetuning on topic, each of 5 seeds" in table("--gpus", "3", *arguments)


def test_what_small_recipes_cost_is_not_shown_as_nothing(tmp_path: Path) -> None:
    small = tmp_path / "recipe.toml"
    small.write_text(RECIPE.read_text(encoding="utf-8").replace("125_000", "9").replace("2048", "2"), encoding="utf-8")
    text = table(recipe=small)
    costs = [row[-2:] for row in rows(text) if row[0].startswith("total")]
    assert costs
    assert all(float(cell) > 0 for pair in costs for cell in pair)


def test_what_the_table_leaves_out_is_said(tmp_path: Path) -> None:
    changed = tmp_path / "recipe.toml"
    raw = RECIPE.read_text(encoding="utf-8").replace("block_tokens = 512", "block_tokens = 512\nfeedforward = 1024")
    changed.write_text(raw + '\n[search]\nlanguage = "de"\nsteps_at_depth = 5000\n', encoding="utf-8")
    text = table("--depth", "12", recipe=changed)
    assert "Left out: MINIPOST at depth 12: " in text
    assert "the recipe's have 1024" in text
    assert "Not counted: the depth search, 2 trials, at most 1.69 EFLOPs together." in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--accelerator", "B9"], ["'B9'", "H100"]),
        (["--depth", "13"], ["depth 13", "12 layers"]),
        (["--examples", "topic=0"], ["0 examples"]),
        (["--examples", "topic=many"], ["'topic=many'", "TASK=NUMBER"]),
        (["--examples", "topic=1", "--examples", "topic=2"], ["'topic=2'", "once a task"]),
        (["--examples", "xnli=1"], ["'xnli'", "topic"]),
        (["--measured", "nowhere"], ["nowhere", "manifest.json"]),
        (["--measured", "nowhere", "--utilisation", "0.3"], ["no --utilisation"]),
        (["--measured", "x", "--accelerator", "L4", "--accelerator", "T4"], ["one --accelerator"]),
    ],
)
def test_what_cannot_be_is_refused_with_advice(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(LingraftError) as refused:
        table(*arguments)
    for word in words:
        assert word in str(refused.value)


def test_a_language_that_is_learned_over_several_depths_is_one_job(tmp_path: Path) -> None:
    text = RECIPE.read_text(encoding="utf-8")
    assert "mlm_heads" in text
    heads = re.sub(r"mlm_heads = .*", "mlm_heads = [2, 4, 12]", text)
    path = tmp_path / "recipe.toml"
    path.write_text(heads + '\n[adaptation.progressive]\nkind = "fixed"\ndepths = [2, 4]\n', encoding="utf-8")
    found = rows(table("--system", "MINIJOINT", recipe=path))
    assert ["adaptation at depth 2, each language", "2", "1", "A3", "102,694", "10.53", "4.06"] in found
    made = json.loads(table("--json", "--system", "MINIJOINT", "--gpus", "14", recipe=path))
    [done] = made["accelerators"][0]["systems"]
    one_language = made["systems"][0]["totals"][0]["v100_days"]
    assert done["makespan_hours"] == pytest.approx(24 * one_language)
