"""The comparison of starts: run small, for real, and what its page says."""

import json
import lzma
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.initialisation import intervals, table
from benchmarks.initialisation.__main__ import main
from benchmarks.initialisation.arms import WHOLE, Start, compared, in_order, system_of
from benchmarks.initialisation.budgets import at_equal_cost
from benchmarks.initialisation.costs import Costs, reference_start
from benchmarks.initialisation.overview import sections
from benchmarks.initialisation.page import page
from benchmarks.initialisation.reading import filled
from benchmarks.initialisation.resources import dictionary, write_lines
from benchmarks.initialisation.summary import main as write_summary
from benchmarks.initialisation.summary import summary
from benchmarks.pages import RECORD_SUFFIX, read_record, write_record
from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task, TaskFile
from lingraft.errors import LingraftError, RecipeError, TextError
from tests.made_up import write

RECORDS = f"initialisation{RECORD_SUFFIX}"
_RESULTS, _RECIPES = (Path(__file__).parents[2] / name for name in ("docs/results", "recipes"))


def found_in(out: Path) -> list[dict[str, Any]]:
    return list(read_record(out / RECORDS)["records"])


def page_of(found: dict[str, Any], picture: str = "curves.png") -> str:
    return page(found, sections(found), picture)


def summary_of(found: dict[str, Any], picture: str, reading: str) -> str:
    return summary(found, [section for one in found.values() for section in sections(one)], picture, reading)


def trained_in(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / "adaptation").rglob("manifest.json")}


def test_it_runs_systems_from_their_starts_and_goes_on_where_it_was(tmp_path: Path) -> None:
    text, out = write(tmp_path / "text", ("en", "de"), count=60), tmp_path / "out"
    given = ["--quick", "--data", str(text), "--out", str(out), "--languages", "de", "--seeds", "1"]
    main([*given, "--starts", "overlap", "--systems", "BL_BASE"])
    assert [record["start"] for record in found_in(out)] == ["overlap"]
    trained = trained_in(out)
    main([*given, "--starts", "pairs", "--systems", "BL_BASE", "MINIJOINT", "--items"])
    assert trained.items() <= trained_in(out).items()
    records = {(record["start"], record["system"]): record for record in found_in(out)}
    asked_for = {("pairs", system) for system in ("BL_BASE", "MINIJOINT")}
    assert {*records} == asked_for | {("overlap", "BL_BASE")}, "what the earlier run found stays in the table"
    for (start, _), record in records.items():
        points = {task: len(scores) for task, scores in record["scores"].items()}
        assert points == {"masked": 2, "alignment": 2, "help-topic": len(record["steps"])}
        assert ("items" in record) == (start == "pairs"), "only the second run kept them"
        for task, items in record.get("items", {}).items():
            assert sum(items["found"]) / sum(items["out_of"]) == pytest.approx(record["scores"][task][-1], abs=1e-4)
        assert {*record["trivial"]} == {*points}
        assert record.get("quality", {}).get("resource") == ("parallel text" if start == "pairs" else None)
    main([*given, "--starts", "pairs", "--systems", "BL_BASE", "MINIJOINT"])
    assert {(one["start"], one["system"]): one for one in found_in(out)} == records, "a run without --items drops none"
    written = lzma.decompress((out / RECORDS).read_bytes()).decode()
    assert str(tmp_path) not in written
    assert (out / "initialisation.md").read_text(encoding="utf-8") == page_of(json.loads(written), "initialisation.png")
    assert (out / "initialisation.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(written)
    assert [one["systems"] for one in found["primaries"]] == [["MINIJOINT"], ["BL_BASE"]]
    assert all({*one["scores"]} == {"masked", "help-topic"} for one in found["primaries"])
    assert {*found["settings"]} > {"encoder", "pretraining", "adaptation from pairs", "finetuning for help-topic"}
    write_text(out / "page-reading.md", "What it means.")
    for summarised in ([], ["--page", str(out / "page.md")]):
        (out / "initialisation.md").unlink()
        write_summary([str(out / RECORDS), *summarised])
        assert (out / "initialisation.md").read_text(encoding="utf-8") == page_of(found, "initialisation.png")
        assert (out / "page.md").exists() == bool(summarised)
    shown = (out / "page.md").read_text(encoding="utf-8")
    opened = summary_of({"initialisation.md": found}, "page.png", "In short.\n\n## What it means\n\nThis.")
    assert opened.index("In short.") < opened.index("An encoder was") < opened.index("## What it means\n\nThis.")
    assert shown == summary_of({"initialisation.md": found}, "page.png", "What it means.")
    assert "What it means." in shown
    with pytest.raises(LingraftError, match="must be in the folder of --page"):
        write_summary([str(out / RECORDS), "--page", str(tmp_path / "page.md")])


def test_labels_of_a_language_give_a_ceiling_and_examples_that_are_cut_are_counted(tmp_path: Path) -> None:
    text, data, out = write(tmp_path / "text", ("en", "de"), count=60), tmp_path / "a-train-b", tmp_path / "out"
    for language in ("en", "de"):
        pages = [json.loads(line) for line in (text / f"{language}.jsonl").read_text().splitlines()]
        write_text(data / f"corpus/{language}.txt", "\n\n".join(page["text"] for page in pages))
        for split in ("train", "test"):
            lines = "".join(json.dumps({"text": page["text"], "label": page["label"]}) + "\n" for page in pages)
            write_text(data / f"labels/topic-{split}-{language}.jsonl", lines)
    settings, _, _ = (_RECIPES / "transfer.toml").read_text(encoding="utf-8").partition("[[tasks]]")
    settings = settings.replace("dev_share = 0.01", "dev_share = 0.2").replace("test_share = 0.02", "test_share = 0.2")
    examples = {"train": "train-en", "dev": "test-en", "test": "test-{language}"}
    files = "\n".join(
        f'{name} = {{ kind = "file", path = "labels/topic-{file}.jsonl" }}' for name, file in examples.items()
    )
    write_text(tmp_path / "recipe.toml", f'{settings}[[tasks]]\nname = "topic"\nkind = "texts"\n{files}\n')
    given = ["--quick", "--recipe", str(tmp_path / "recipe.toml"), "--data", str(data), "--out", str(out)]
    given += ["--languages", "de", "--seeds", "1", "--starts", "overlap", "--systems", "BL_BASE"]
    given += ["--set", 'encoder.family = "roberta"', "pretraining.mask_rate = 0.2"]
    main([*given, "--labels", str(data / "labels")])
    found = read_record(out / RECORDS)
    assert (found["sizes"]["family"], found["settings"]["pretraining"]["mask_rate"]) == ("roberta", 0.2)
    [ceiling] = found["ceilings"]
    assert ceiling.items() >= {"language": "de", "start": "overlap", "seed": 1, "task": "topic"}.items()
    assert 0 <= ceiling["score"] <= 1
    assert found["cut"] == {"topic": {"en": 1.0, "de": 1.0}}, "pages are longer than blocks of 24 tokens"
    made = {path: path.stat().st_mtime_ns for path in (out / "ceiling").rglob("manifest.json")}
    main([*given, "--labels", str(data / "labels")])
    assert made == {path: path.stat().st_mtime_ns for path in made}
    main(given)
    assert read_record(out / RECORDS)["ceilings"] == [ceiling], "a run without labels leaves them in the record"
    assert "finetuned on labels in the language" in (out / "initialisation.md").read_text(encoding="utf-8")


def test_minijoint_at_further_depths_has_primaries_with_lower_heads_there() -> None:
    recipe = Recipe.load(_RECIPES / "demo-scratch.toml")
    systems, depth = ("BL_BASE", "MINIJOINT"), recipe.adaptation.depth
    made = compared(recipe, [Start.OVERLAP], systems, [1], {}, depths=[1, 3])
    found = {system_of(arm, made): (arm.recipe.encoder.mlm_heads, arm.depth) for arm in made.arms}
    over = {f"MINIJOINT over {layers}": ((layers, 4), layers) for layers in (1, 3)}
    assert found.items() >= over.items()
    assert found["MINIJOINT"][1] == depth
    assert len({arm.primary for arm in made.arms}) == 4
    assert in_order([*reversed(found), WHOLE]) == ["BL_BASE", "MINIJOINT", *over, WHOLE]
    for wrong in (0, depth, 4):
        with pytest.raises(RecipeError, match=rf"further depths are \[{wrong}\], but must be from 1 to 3, and not"):
            compared(recipe, [Start.OVERLAP], systems, [1], {}, depths=[wrong])


def test_results_of_other_sizes_do_not_enter_a_table(tmp_path: Path) -> None:
    found = read_record(_RESULTS / RECORDS)
    write_record(tmp_path / RECORDS, found)
    assert table.read(tmp_path / RECORDS, found["sizes"]) == found
    with pytest.raises(LingraftError, match=r"other sizes: .'width': .128, 64"):
        table.read(tmp_path / RECORDS, found["sizes"] | {"width": 64})
    further = found["sizes"] | {"adaptation": {"a further one": [100, 0.001]}}
    assert table.read(tmp_path / RECORDS, further) == found, "a further start has updates of its own"
    with pytest.raises(LingraftError, match=r"other sizes: .'adaptation from text': .\[\d+, 0.\d+\], \[100, 0.5\]"):
        table.read(tmp_path / RECORDS, found["sizes"] | {"adaptation": {"text": [100, 0.5]}})


def test_settings_that_are_no_toml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"--set 'encoder.family = roberta' is no TOML: Invalid value .*\. Quote text"
    ):
        main(["--out", str(tmp_path), "--set", "encoder.family = roberta"])


def test_a_run_replaces_its_own_records_and_keeps_the_others() -> None:
    first, again, other = (
        record("overlap", "BL_BASE", [0.1]),
        record("overlap", "BL_BASE", [0.2]),
        record("text", "BL_BASE", [0.3]),
    )
    ceiling = {"language": "de", "start": "text", "seed": 1, "task": "pos", "score": 0.8}
    earlier = {
        "runs": [{"command": "one"}],
        "sizes": {"adaptation": {"overlap": [800, 0.004]}},
        "records": [first, other],
        "primaries": [{"name": "a", "systems": ["BL_BASE"]}, {"name": "b", "systems": ["BL_BASE", "MINIPOST"]}],
        "cut": {"pos": {"de": 0.5, "tr": 0.1}},
        "ceilings": [ceiling | {"score": 0.5}],
    }
    new = {
        "records": [again],
        "primaries": [{"name": "b", "systems": ["BL_BASE"], "layers": 2}],
        "settings": {"encoder": {}},
        "cut": {"pos": {"tr": 0.2}, "xnli": {"tr": 0.3}},
        "ceilings": [ceiling],
    }
    merged = table.merge(earlier, {"command": "two"}, new, {"adaptation": {"text": [200, 0.001]}})
    assert merged["records"] == [again, other]
    assert merged["primaries"] == [
        earlier["primaries"][0],
        {"name": "b", "systems": ["BL_BASE", "MINIPOST"], "layers": 2},
    ]
    assert merged["ceilings"] == [ceiling]
    assert merged["cut"] == {"pos": {"de": 0.5, "tr": 0.2}, "xnli": {"tr": 0.3}}
    assert merged["settings"] == {"encoder": {}}
    assert merged["runs"] == [{"command": "one"}, {"command": "two"}]
    assert merged["sizes"]["adaptation"] == {"overlap": [800, 0.004], "text": [200, 0.001]}


def record(start: str, system: str, scores: list[float], alignment_s: float = 0.0) -> dict[str, Any]:
    named = {"language": "de", "start": start, "system": system, "seed": 1, "depth": 2, "steps": [0, 50, 100]}
    spent = {"flops": [0, 1e12, 2e12], "elapsed_s": [0.0, 5.0, 10.0], "alignment_s": alignment_s}
    return named | spent | {"scores": {"masked": scores, "topic": scores}}


def tagged(system: str, language: str, scores: list[float]) -> dict[str, Any]:
    named = {"language": language, "trivial": {"pos": 0.2}, "scores": {"pos": scores}}
    return record("overlap", system, [0.1]) | named | {"items": {"pos": {"found": [6] * 30, "out_of": [10] * 30}}}


def test_compute_to_near_maximal_counts_the_alignment_and_interpolates_between_checkpoints() -> None:
    reference = record("overlap", "BL_BASE", [0.30, 0.40, 0.50])  # 0.475 is near-maximal: 1.75 TFLOP
    aligned = record("text", "MINIJOINT", [0.48, 0.50, 0.50], alignment_s=5.0)
    slower = record("pairs", "MINIJOINT", [0.45, 0.50, 0.50], alignment_s=5.0)
    never = record("overlap", "MINIJOINT", [0.30, 0.40, 0.45])
    ends = record("overlap", "MINIJOINT", [0.30, 0.50])
    assert Costs([reference, ends], "topic").times_less(ends) is None, "between its ends nothing was judged"
    short = ends | {"steps": [0, 100], "flops": [0, 2e12], "elapsed_s": [0.0, 10.0]}
    assert Costs([short], "topic").curve(short) is None, "nor was anything else"
    costs = Costs([reference, aligned, slower, never], "topic", Start.OVERLAP)
    assert costs.alignment_flops(aligned) == pytest.approx(1e12)  # 5 s at 0.2 TFLOP/s
    elsewhere = Costs([reference | {"scores": {"masked": [0.1]}}, aligned], "topic", Start.OVERLAP)
    assert elsewhere.alignment_flops(aligned) == pytest.approx(1e12), "its rate is of no task"
    assert elsewhere.reached(aligned) is None
    assert costs.reached(reference) == pytest.approx(1.75e12)
    assert costs.reached(aligned) == pytest.approx(1e12)
    assert costs.reached(slower) == pytest.approx(1.5e12)
    assert costs.reached(never) == math.inf
    assert costs.times_less(aligned) == pytest.approx(1.75)
    facts = read_record(_RESULTS / RECORDS)
    shown = page_of(facts | {"records": [reference, aligned, slower, never]})
    rows = [line.split(" | ") for line in shown.splitlines()]
    [missed] = [row for row in rows if row[:3] == ["| topic", "`overlap`", "MINIJOINT"]]
    assert missed[3] == "not reached"
    assert "| de | topic | `aligned`, text alone | 1 | MINIJOINT | 1." in shown
    alone = page_of(facts | {"records": [reference, never]})
    assert "Least compute" not in alone, "there are no starts to compare"


def test_standard_adaptation_from_the_same_rows_is_compared_with_where_no_other_start_is_given() -> None:
    whole = record("text", "BL_BASE", [0.40, 0.45, 0.50])
    mini = record("text", "MINIJOINT", [0.40, 0.475, 0.50])
    assert Costs([whole, mini], "topic").times_less(mini) == pytest.approx(1.5)
    assert Costs([whole, mini], "topic", Start.OVERLAP).times_less(mini) is None
    assert (reference_start([whole, mini]), reference_start([whole, record("overlap", "BL_BASE", [0.3])])) == (
        None,
        Start.OVERLAP,
    )


def test_systems_are_compared_at_the_cost_of_the_cheapest_and_by_a_score_that_all_reach() -> None:
    whole = record("overlap", "BL_BASE", [0.2, 0.4, 0.6])
    mini = record("overlap", "MINIJOINT", [0.2, 0.4, 0.5]) | {"flops": [0, 4e11, 8e11], "elapsed_s": [0.0, 2.0, 4.0]}
    found = at_equal_cost([whole, mini], "topic")
    assert found["BL_BASE"].score_at_flops == pytest.approx([0.2 + 0.2 * 0.8] * 3)  # after 0.8 TFLOP
    assert found["BL_BASE"].score_at_seconds == pytest.approx([0.2 + 0.2 * 0.8] * 3)  # after 4 s
    assert found["MINIJOINT"].score_at_flops == pytest.approx([0.5] * 3)
    assert found["MINIJOINT"].lead == pytest.approx([0.5 - 0.36] * 3)
    assert (found["MINIJOINT"].ahead, found["BL_BASE"].ahead) == ([True], [False])
    assert found["MINIJOINT"].times_less_to_common == pytest.approx([1.5e12 / 8e11] * 3)
    assert found["BL_BASE"].times_less_to_common == pytest.approx([1] * 3)
    late = whole | {"alignment_s": 6.0}
    assert at_equal_cost([late, mini], "topic")["BL_BASE"].score_at_seconds is None, "its alignment takes longer"
    in_turkish = [one | {"language": "tr"} for one in (late, mini)]
    partly = at_equal_cost([whole, mini, *in_turkish], "topic")
    assert partly["BL_BASE"].score_at_seconds is None, "means of one table are over the same languages"
    assert partly["MINIJOINT"].score_at_seconds == pytest.approx([0.5] * 3)
    other_language = record("overlap", "BL_BASE", [0.9, 0.9, 0.9]) | {"language": "tr"}
    assert at_equal_cost([whole, mini, other_language], "topic") == found, "only one system has it"


def test_equal_cost_is_over_the_languages_that_count() -> None:
    informative = [tagged(system, "de", [0.2, 0.5, 0.6]) for system in ("BL_BASE", "MINIJOINT")]
    trivial = [tagged(system, "ar", [0.1, 0.2, 0.2]) for system in ("BL_BASE", "MINIJOINT")]
    facts = read_record(_RESULTS / f"transfer-roberta{RECORD_SUFFIX}")
    shown = page_of(facts | {"records": [*informative, *trivial]})
    assert "| parts of speech | `overlap` | MINIJOINT | 1.7; 1.0x | – | 60.0 (60.0 to 60.0) |" in shown
    without_items = [{name: each[name] for name in each if name != "items"} for each in [*informative, *trivial]]
    shown = page_of(facts | {"records": without_items})
    assert "| parts of speech | `overlap` | MINIJOINT | 1.7; 1.0x | – | 40.0 (20.0 to 60.0) |" in shown


def test_lines_are_the_first_texts_of_examples_that_are_translations_row_by_row(tmp_path: Path) -> None:
    rows = {"en": ("two ships", "two ships", "a garden"), "de": ("zwei Schiffe", "zwei Schiffe", "ein Garten")}
    for language, texts in rows.items():
        write_text(tmp_path / f"{language}.tsv", "".join(f"{text}\tx{row}\tyes\n" for row, text in enumerate(texts)))
    examples = TaskFile(kind="file", path=str(tmp_path / "{language}.tsv"))
    task = Task(name="xnli", kind="pairs", train=examples, dev=examples, test=examples)
    write_lines(task, "en", "de", tmp_path / "lines.tsv")
    assert (tmp_path / "lines.tsv").read_text() == "two ships\tzwei Schiffe\na garden\tein Garten\n"
    tags = Task(name="names", kind="tags", train=examples, dev=examples, test=examples)
    with pytest.raises(TextError, match="is of kind 'tags', and --lines takes one of kind 'pairs' or 'texts'"):
        write_lines(tags, "en", "de", tmp_path / "others.tsv")
    write_text(tmp_path / "de.tsv", "zwei Schiffe\tx\tyes\n")
    with pytest.raises(TextError, match="has 3 test examples in 'en' and 1 in 'de'"):
        write_lines(task, "en", "de", tmp_path / "others.tsv")


def test_an_unpacked_dictionary_is_found_and_languages_without_one_are_not_asked_for(tmp_path: Path) -> None:
    index = tmp_path / "usr" / "share" / "dictd" / "freedict-eng-deu.index"
    index.parent.mkdir(parents=True)
    write_text(index, "")
    assert dictionary("en", "de", tmp_path) == index
    assert dictionary("en", "xx", tmp_path) is None
    assert dictionary("fr", "de", tmp_path) is None


def judged(system: str, seed: int, found: list[int], language: str = "de") -> dict[str, Any]:
    items = {"pos": {"found": found, "out_of": [10] * len(found)}}
    return record("overlap", system, [0.1]) | {"language": language, "seed": seed, "items": items}


def test_intervals_cover_what_seeds_and_items_leave_open_and_resample_all_systems_alike() -> None:
    random = np.random.default_rng(5)
    noise = random.integers(0, 10, size=(2, 400))
    base = [judged("BL_BASE", seed, noise[seed].tolist()) for seed in (0, 1)]
    half = [judged("MINIJOINT", seed, (noise[seed] // 2).tolist()) for seed in (0, 1)]
    scores = intervals.final_scores([*base, *half], "pos").by_system
    measured = intervals.Interval.of(scores["BL_BASE"])
    assert measured.value == pytest.approx(noise.mean() / 10)
    assert measured.low < measured.value < measured.high
    by_items = noise.std() / 10 / math.sqrt(400)
    assert 2 * by_items < measured.high - measured.low < 8 * by_items
    share = intervals.shares_of_base(scores)
    assert share["BL_BASE"] == (1, 1, 1)
    # Both sides have the same items in each resample, so their ratio is surer than either.
    assert share["MINIJOINT"].high - share["MINIJOINT"].low < (measured.high - measured.low) / measured.value


def test_intervals_are_over_languages_that_all_systems_have() -> None:
    only_base = judged("BL_BASE", 0, [9] * 50, language="tr")
    both = [judged(system, 0, [5] * 50) for system in ("BL_BASE", "MINIJOINT")]
    found = intervals.final_scores([only_base, *both, judged("BL_BASE", 1, [9] * 50)], "pos")
    assert found.by_system["BL_BASE"][0] == pytest.approx(0.5)
    assert (found.languages, found.seeds) == (["de"], [0])
    assert intervals.final_scores([only_base], "other").by_system == {}


def test_a_mean_over_languages_and_seeds_is_as_sure_as_they_agree() -> None:
    alike = intervals.mean_over({(language, seed): 2.0 for language in ("de", "tr") for seed in (1, 2)})
    assert alike == (2, 2, 2)
    apart = intervals.mean_over({("de", 1): 1.0, ("de", 2): 1.0, ("tr", 1): 3.0, ("tr", 2): 3.0})
    assert apart == (2, 1, 3)
    assert intervals.mean_over({("de", 1): 1.0, ("tr", 1): 3.0, ("de", 2): 9.0}) == (2, 1, 3)
    assert intervals.mean_over({("de", 2): 1.0, ("tr", 1): 3.0}) is None
    assert intervals.mean_over({("de", 1): 1.0, ("tr", 1): math.nan}) == (1, 1, 1)
    assert intervals.mean_over({("de", 1): math.nan, ("tr", 1): math.nan}) is None


def test_the_summary_counts_what_is_informative_and_says_how_sure_it_is() -> None:
    def one(system: str, language: str, seed: int, scores: list[float], start: str = "overlap") -> dict[str, Any]:
        found = [round(10 * scores[-1])] * 30
        named = {"language": language, "seed": seed, "trivial": {"pos": 0.2}, "scores": {"pos": scores}}
        return record(start, system, [0.1]) | named | {"items": {"pos": {"found": found, "out_of": [10] * 30}}}

    records = [
        one(system, language, seed, scores)
        for language in ("de", "tr")
        for seed in (1, 2)
        for system, scores in (("BL_BASE", [0.2, 0.5, 0.6]), ("MINIJOINT", [0.2, 0.6, 0.6]))
    ]
    records += [one("BL_BASE", "ar", seed, [0.1, 0.2, 0.2]) for seed in (1, 2)]
    records += [one("MINIPOST", language, 1, [0.1, 0.2, 0.3]) for language in ("de", "tr")]
    sizes = {"layers": 6, "width": 192, "depth": 2, "family": "modern"}
    ceilings = [
        {"language": language, "start": "overlap", "seed": 1, "task": "pos", "score": score}
        for language, score in (("de", 0.7), ("tr", 0.9))
    ]
    found = {"runs": [{"device": "a CPU, bound to 2 cores"}], "records": records, "sizes": sizes, "ceilings": ceilings}
    text, [section] = summary_of({"all.md": found}, "curves.png", ""), sections(found)
    details = section.table()
    assert "(all.md)" in text
    assert "by their seconds" not in text
    aligned = found | {"runs": [{"device": "another CPU"}], "records": [records[0] | {"alignment_s": 1.0}]}
    assert "by their seconds on another CPU. Pretraining and" in summary_of(
        {"all.md": found, "aligned.md": aligned}, "", ""
    )
    rows = {cells[1].strip(): cells[2].strip() for line in text.splitlines() if len(cells := line.split("|")) > 2}
    assert rows["system"] == "parts of speech"
    assert rows["**A ModernBERT-style encoder, rows copied by overlap**"] == "de, tr; 1 seed"
    assert rows["BL_BASE"] == "60.0% (60.0 to 60.0)"
    times = "speed-up 1.8x (1.8 to 1.8)"
    assert (
        rows["MINIJOINT (100% of the compute)"] == f"60.0% (60.0 to 60.0)<br>100% of BL_BASE's (100 to 100)<br>{times}"
    )
    never = "30.0% (30.0 to 30.0)<br>50% of BL_BASE's (50 to 50)<br>target never reached in 2 of 2"
    assert rows["MINIPOST (100% of the compute)"] == never
    assert rows["*BL_BASE, finetuned on labels in the language (1 seed)*"] == "80.0%"
    assert "| system | parts of speech (de, tr; 1 seed) |" in details
    assert "| *BL_BASE, finetuned on labels in the language (1 seed)* | 80.0% |" in details
    assert "hardly better than the trivial answer: parts of speech in ar." in details
    assert "by depth" not in details
    deeper = one("MINIJOINT over 4", "de", 1, [0.2, 0.7, 0.9])
    [same, whole] = sections({**found, "records": [*records, one(WHOLE, "de", 1, [0.2, 0.7, 0.9])]})
    assert same.table() == details, "all layers are a depth"
    assert f"| {WHOLE} (100% of the compute) | 90.0%" in whole.table()
    [same, depths] = sections({**found, "records": [*records, deeper]})
    assert same.table() == details, "other systems are compared in all of their languages"
    in_doubt = one("BL_BASE", "de", 2, [0.1, 0.2, 0.2])
    assert not sections({**found, "records": [*records, deeper, in_doubt]})[-1].columns, "with every seed it counts"
    assert depths.title == "A ModernBERT-style encoder, rows copied by overlap, by depth"
    assert "| parts of speech (de; 1 seed) |" in depths.table()
    over = "90.0% (90.0 to 90.0); 150% of BL_BASE's (150 to 150); "
    assert f"| MINIJOINT over 4 (100% of the compute) | {over}" in depths.table()
    assert "MINIPOST" not in depths.table()
    assert summary_of({"all.md": {**found, "records": [*records, deeper]}}, "curves.png", "") == text
    two_seeds = {**found, "records": [each for each in records if each["system"] != "MINIPOST"]}
    assert "| de, tr; 2 seeds |" in summary_of({"all.md": two_seeds}, "curves.png", "")
    wider = sections(two_seeds)[0].table()
    assert "| *BL_BASE, finetuned on labels in the language (1 seed)* | 80.0% |" in wider  # of the seed that has it


def test_what_is_never_reached_is_left_out_of_the_mean_and_told() -> None:
    sizes = {"layers": 6, "width": 192, "depth": 2, "family": "modern"}

    def told(reaching: Sequence[str]) -> str:
        records = [tagged("BL_BASE", language, [0.2, 0.5, 0.6]) for language in (*reaching, "tr")]
        records += [tagged("MINIJOINT", language, [0.2, 0.6, 0.6]) for language in reaching]
        records += [tagged("MINIJOINT", "tr", [0.2, 0.4, 0.5])]
        return summary_of({"all.md": {"runs": [], "records": records, "sizes": sizes}}, "a.png", "")

    assert "<br>speed-up 1.8x (1.8 to 1.8) in 2 of 3, target never reached in 1 |" in told(["de", "es"])
    assert "<br>target never reached in 1 of 2 |" in told(["de"]), "one speed-up says little"


def test_of_what_is_there_before_any_update_no_ratio_is_told() -> None:
    """Its compute is an alignment's alone, by seconds of a clock."""

    def from_text(system: str, scores: list[float]) -> dict[str, Any]:
        return tagged(system, "de", scores) | {"start": "text", "alignment_s": 5.0}

    base, there = from_text("BL_BASE", [0.2, 0.5, 0.6]), from_text("MINIJOINT", [0.6, 0.6, 0.6])
    costs = Costs([base, there], "pos")
    assert costs.times_less(there) is None
    assert costs.times_less(base) == 1.0
    assert at_equal_cost([base, there], "pos")["MINIJOINT"].times_less_to_common is None
    early, late = from_text("BL_BASE", [0.6, 0.6, 0.6]), from_text("MINIJOINT", [0.2, 0.6, 0.6])
    assert Costs([early, late], "pos").times_less(late) is None
    assert Costs([early, there], "pos").times_less(there) is None
    never = from_text("MINIPOST", [0.2, 0.3, 0.3])
    for reference in (base, early):
        found = {"runs": [], "records": [reference, there, never], "sizes": {"layers": 6, "width": 192, "depth": 2}}
        table = sections(found)[0].table()
        assert "; 100% of BL_BASE's (100 to 100); no update needed |" in table
        assert "; 100% of BL_BASE's (100 to 100); target never reached in 1 of 1 |" in table
    [section] = sections({"runs": [], "records": [early, late], "sizes": {"layers": 6, "width": 192, "depth": 2}})
    assert "; 100% of BL_BASE's (100 to 100); BL_BASE alone needs no update in 1 of 1 |" in section.table()
    without_alignment = [tagged("BL_BASE", "de", [0.6, 0.6, 0.6]), tagged("MINIJOINT", "de", [0.2, 0.6, 0.6])]
    assert Costs(without_alignment, "pos").times_less(without_alignment[1]) is None, "nothing was spent"


def test_a_reading_takes_its_numbers_from_the_records() -> None:
    base, mini = tagged("BL_BASE", "de", [0.2, 0.5, 0.6]), tagged("MINIJOINT", "de", [0.3, 0.6, 0.6])
    half = mini | {"flops": [0, 5e11, 1e12], "items": {"pos": {"found": [3] * 30, "out_of": [10] * 30}}}
    other = [one | {"start": "text"} for one in (base, mini)]
    primaries = [
        {"systems": ["BL_BASE"], "seed": seed, "scores": {"pos": score}} for seed, score in ((1, 0.8), (2, 0.9))
    ]
    sizes = {"layers": 6, "width": 192, "depth": 2, "family": "modern"}
    its = sections({"records": [base, half, *other], "sizes": sizes, "primaries": primaries})
    numbers = {
        "share[modern MINIJOINT pos]": "50 to 100",
        "share[modern overlap MINIJOINT pos]": "50",
        "compute[modern overlap MINIJOINT pos]": "50",
        "initial[modern MINIJOINT pos]": "50",
        "updates[modern overlap MINIJOINT pos]": "50",
        "source[modern BL_BASE pos]": "85.0",
        "ahead[modern MINIJOINT pos]": "1 of 2",
        "lead[modern overlap MINIJOINT pos]": "10.0 (10.0 to 10.0)",
        "early[modern overlap MINIJOINT pos]": "0 of 1",
        "rise[modern overlap MINIJOINT pos]": "0",
        "score[modern overlap MINIJOINT pos de 1]": "60.0",
    }
    for place, number in numbers.items():
        assert filled(f"It has {{{place}}}%.", its) == f"It has {number}%."
    there = [one | {"scores": {"pos": [0.6] * 3}, "seed": 2} for one in (base, half)]
    its = sections({"records": [base, half, *there], "sizes": sizes})
    assert filled("{early[modern overlap MINIJOINT pos]}", its) == "0 of 1", "what needs no update is not counted"
    assert filled("Nothing.", []) == "Nothing."
    for absent in ("{share[roberta MINIJOINT pos]}", "{shares[modern MINIJOINT pos]}"):
        with pytest.raises(
            LingraftError, match=re.escape(f"has the place {absent}, of which the records have no number")
        ):
            filled(absent, its)


def test_languages_whose_rows_could_not_be_aligned_do_not_count_among_aligned_ones() -> None:
    def one(language: str, succeeded: bool) -> dict[str, Any]:
        named = {"language": language, "trivial": {"pos": 0.2}, "scores": {"pos": [0.2, 0.5, 0.6]}}
        named |= {"items": {"pos": {"found": [6] * 30, "out_of": [10] * 30}}, "quality": {"succeeded": succeeded}}
        return record("text", "BL_BASE", [0.1]) | named

    sizes = {"layers": 6, "width": 192, "depth": 2, "family": "modern"}
    [section] = sections({"records": [one("de", True), one("ru", False)], "sizes": sizes})
    assert section.table().endswith("Not counted, since alignment failed for some system or seed: ru.")
    assert "| parts of speech (de; 1 seed) |" in section.table()
    nothing = summary_of({"all.md": {"records": [one("ru", False)], "sizes": sizes}}, "a.png", "")
    assert "Nothing can be compared yet" in nothing
    assert "a.png" not in nothing
