"""The comparison's one command run small, for real: killed, continued, and what its page says."""

import lzma
import re
from pathlib import Path

import pytest

from benchmarks.pages import read_record
from benchmarks.paper.__main__ import RECIPE, main
from benchmarks.paper.claims import claims, pretrained_again
from benchmarks.paper.data import TAGGED_MB, on_data
from benchmarks.paper.page import PAGE_RECORDS_FILE, RUN_FILE
from benchmarks.samples import sample
from lingraft.artifacts.files import write_text
from lingraft.artifacts.manifest import Kind
from lingraft.comparison import runner
from lingraft.comparison.plan import plan_comparison
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.errors import RecipeError
from lingraft.reports.paper.records import PaperRecords
from lingraft.reports.paper.results_table import ResultsTable
from tests.fixtures.forked import at_once, start
from tests.made_up import documents, write
from tests.reports.paper.made_up import MadeUp

_TOML = """
name = "tiny-comparison"
source = "en"
targets = ["de"]
precision = "fp32"
text = { kind = "folder", path = "corpus" }
tokenizer = { vocabulary = 80 }
encoder = { width = 16, layers = 2, attention_heads = 2, mlm_heads = [1, 2], block_tokens = 24 }
pretraining = { steps = 6, batch_blocks = 8, learning_rate = 3e-3 }
mini = { steps = 4, fresh_layers = 1, batch_blocks = 8, learning_rate = 3e-3 }
adaptation = { steps = 4, depth = 1, checkpoint_every_steps = 4, batch_blocks = 8, learning_rate = 3e-3 }
paper = { systems = ["BL_BASE", "MINIPOST", "MINIJOINT"], depths = [2] }

[[tasks]]
name = "names"
kind = "tags"
train = { kind = "file", path = "eval/tags/en.tsv" }
dev = { kind = "file", path = "eval/tags/en.tsv" }
test = { kind = "file", path = "eval/tags/{language}.tsv" }
finetuning = { epochs = 0.5, seeds = [1] }
"""


TRAINED = {Kind.PRIMARY, Kind.MINI, Kind.TASK, Kind.EMBEDDINGS}


def write_data(folder: Path) -> list[str]:
    """A data folder; returns the command's arguments for it."""
    write(folder / "data" / "corpus", ("en", "de"), count=120)
    for language in ("en", "de"):
        words = [document["text"].split() for document in documents(language, 20)]
        sentences = ["".join(f"{word}\t{'B-PER' if word[0] == 'b' else 'O'}\n" for word in some[:8]) for some in words]
        (folder / "data" / "eval" / "tags").mkdir(parents=True, exist_ok=True)
        write_text(folder / "data" / "eval" / "tags" / f"{language}.tsv", "\n".join(sentences))
    write_text(folder / "recipe.toml", _TOML)
    given = {"data": "data", "out": "out", "page": "page", "recipe": "recipe.toml"}
    return [word for name, place in given.items() for word in (f"--{name}", str(folder / place))]


def killed_once(arguments: list[str], seen: Path) -> str:
    """Run the command until a page with a result is there, kill it as a node's death would, and return the page."""
    records = seen.with_name(PAGE_RECORDS_FILE)
    with start(main, arguments, log=seen.parents[1] / "killed.log") as process:
        process.wait_until(lambda: seen.exists() and b"by_seed" in lzma.decompress(records.read_bytes()))
    return seen.read_text(encoding="utf-8")


def test_the_command_killed_and_run_twice_at_once_ends_with_every_cell_on_its_page_and_nothing_done_twice(
    tmp_path: Path,
) -> None:
    arguments, page = write_data(tmp_path), tmp_path / "page" / "README.md"
    before = killed_once(arguments, page)
    assert "**Not finished: " in before
    assert "Not yet written." in before
    write_text(tmp_path / "page" / "reading.md", "Words of a person.")
    with at_once(tmp_path) as gate:
        running = [start(main, arguments, log=tmp_path / f"{number}.log", gate=gate) for number in range(2)]
    assert [one.ends() for one in running] == [0, 0], [one.said for one in running]
    recipe = on_data(Recipe.load(tmp_path / "recipe.toml"), tmp_path / "data", tmp_path / "out")
    comparison = plan_comparison(recipe)
    trainings = [job for job in runner.comparison_jobs(comparison, tmp_path / "out") if job.kind in TRAINED]
    told = "".join(log.read_text(encoding="utf-8") for log in tmp_path.glob("*.log"))
    assert len(re.findall(r"step (\d+)/\1,", told)) == len(trainings)  # each was trained once

    said = page.read_text(encoding="utf-8")
    assert all(one.said.strip().endswith(str(page)) for one in running)
    assert "Not finished" not in said
    assert "## What it means\n\nWords of a person.\n" in said
    assert "python -m benchmarks.paper --data DIR --out DIR --page page --recipe recipe.toml" in said
    assert not [each for each in (tmp_path / "page").glob("*.md") if str(tmp_path) in each.read_text(encoding="utf-8")]
    linked = {file for file in re.findall(r"\]\(([^)/]+)\)", said) if file != "data.md"}  # which a person writes
    assert linked >= {"numbers.md"}
    assert all((tmp_path / "page" / file).exists() for file in linked)

    records = PaperRecords.model_validate(read_record(tmp_path / "page" / PAGE_RECORDS_FILE))
    found = {(cell.system, cell.depth, cell.task) for cell in records.cells if not cell.failed}
    arms = {(arm.system, arm.depth) for arm in comparison.arms}
    assert found == {(*arm, task) for arm in arms for task in ("masked", "names")}
    stages = [one["stage"] for one in read_record(tmp_path / "page" / RUN_FILE)["trained"]]
    assert {stage: stages.count(stage) for stage in stages} == {
        "pretraining": 2,
        "step 1b": 1,
        "adaptation": len(arms),
        "finetuning": 3,  # the primaries, and MINIJOINT's mini-model
    }


def test_claims_say_in_how_many_languages_a_ratio_was_to_be_had() -> None:
    grid = ResultsTable(MadeUp().records())
    found = {row.label: row.cells for row in claims(grid).rows}
    [joint] = [cells for label, cells in found.items() if label == "MINIJOINT: times less compute to 95% of BL_BASE"]
    task = grid.records.tasks[0]
    ratio = grid.speed_up(grid.variant(grid.mini_variants[-1].system), task).mean
    assert joint[:2] == ("2.3×", f"{ratio:.2f}×")
    shares = [cells for label, cells in found.items() if label.startswith("BL_SMALL: share")]
    assert shares[0][0] == "clearly below"
    [deepest] = [cells for label, cells in found.items() if "best in the end" in label]
    assert "de 12" in deepest[1]


def test_a_pretraining_that_was_done_again_is_compared_by_itself_with_what_was_run_then() -> None:
    run, languages = MadeUp(), ("ar", "de", "tr", "zh")
    joint = [run.cell(System.MINIJOINT, 4, language, seed=7) for language in languages]
    base = [run.cell(System.BL_BASE, 12, language, seed=7) for language in languages]
    assert pretrained_again(ResultsTable(run.records(*joint))) == {}
    [(seed, again)] = pretrained_again(ResultsTable(run.records(*joint, *base))).items()
    assert (seed, [*again.records.systems]) == (7, [System.BL_BASE, System.MINIJOINT])
    assert [task.name for task in again.records.tasks] == ["xnli"]
    only_in_source = run.source(System.MINIPOST, 12, 0.8, pretraining_seed=7)
    [early] = pretrained_again(ResultsTable(run.records(*base, source_cells=(only_in_source,)))).values()
    assert [*early.records.systems] == [System.BL_BASE, System.MINIPOST]
    labels = [row.label for row in claims(again).rows]
    assert "MINIJOINT: share of BL_BASE's final score" in labels
    assert not [label for label in labels if "MINIPOST" in label or "BL_SMALL" in label]


def test_a_sample_takes_parts_from_all_over_a_file(tmp_path: Path) -> None:
    write_text(tmp_path / "all.tsv", "\n\n".join(f"part {number}" for number in range(100)) + "\n")
    sample(tmp_path / "all.tsv", 0.00025, tmp_path / "some" / "kept.tsv")
    kept = (tmp_path / "some" / "kept.tsv").read_text(encoding="utf-8").split("\n\n")
    assert (kept[0], kept[1], len(kept)) == ("part 0", "part 4", 25)
    sample(tmp_path / "all.tsv", TAGGED_MB, tmp_path / "whole.tsv")
    assert (tmp_path / "whole.tsv").read_text(encoding="utf-8").count("part") == 100


def test_text_from_elsewhere_is_refused(tmp_path: Path) -> None:
    raw = Recipe.load(RECIPE).model_dump(mode="json") | {"text": {"kind": "libreoffice-help"}}
    with pytest.raises(RecipeError, match=r"\[text\] is of kind 'libreoffice-help'"):
        on_data(Recipe.parse(raw), tmp_path, tmp_path)
