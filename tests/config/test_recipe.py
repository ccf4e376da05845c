import copy
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lingraft.config.encoder import Family
from lingraft.config.recipe import Recipe
from lingraft.config.section import Section
from lingraft.config.text import Folder
from lingraft.errors import RecipeError
from lingraft.source_model import load_recipe

ROOT = Path(__file__).parents[2]
TINY = tomllib.loads((ROOT / "tests/tiny.toml").read_text())
SHIPPED = sorted((ROOT / "recipes").glob("*.toml"))


def changed(**changes: Any) -> dict[str, Any]:
    """The tiny recipe with values at dotted paths: changed(**{"encoder.width": 8, "tasks.0.name": "x"})."""
    recipe = copy.deepcopy(TINY)
    for path, value in changes.items():
        *parents, key = path.split(".")
        section: Any = recipe
        for parent in parents:
            section = section[int(parent)] if isinstance(section, list) else section.setdefault(parent, {})
        section[key] = value
    return recipe


def refusal(**changes: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe.parse(changed(**changes))
    return str(caught.value)


def sections(root: type[Section] = Section) -> Iterator[type[Section]]:
    for section in root.__subclasses__():
        yield section
        yield from sections(section)


HEADS = "layers from 1 to 3, rising without repeats, the last layer, 3, included"
FIELDS = sorted({(section, name) for section in sections() for name in section.model_fields}, key=str)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_recipe_we_ship_is_valid(path: Path) -> None:
    assert load_recipe(path).targets


@pytest.mark.parametrize("path", [*SHIPPED, ROOT / "tests/tiny.toml"], ids=lambda path: path.name)
def test_a_recipe_survives_the_way_through_json(path: Path) -> None:
    recipe = load_recipe(path)
    again = Recipe.parse(recipe.to_json())
    assert again == recipe
    assert again.digest() == recipe.digest() != again.model_copy(update={"name": "other"}).digest()


def test_every_field_says_what_it_means() -> None:
    said = {f"{section.__name__}.{name}": section.model_fields[name].description or "" for section, name in FIELDS}
    assert len(said) > 200
    assert [field for field, description in said.items() if not description.endswith(".") or len(description) < 2] == []


@pytest.mark.parametrize(
    ("path", "suggestion", "allowed"),
    [
        ("tragets", "targets", "adaptation, alignment, cluster, encoder"),
        ("text.pth", "path", "cleaning, column, kind, path"),
        (
            "tasks.0.finetune",
            "finetuning",
            "dev, evaluation, examples, finetuning, kind, label_names, labels, languages, name",
        ),
        ("cluster.training.cpus", "cpu", "accelerator, accelerator_count, cpu"),
    ],
)
def test_an_unknown_key_is_named_with_its_path_and_what_was_meant(path: str, suggestion: str, allowed: str) -> None:
    message = refusal(**{path: 1})
    assert f"  {path}: unknown key. Did you mean '{suggestion}'? Allowed here: {allowed}" in message


def test_an_unknown_key_inside_a_list_is_named_with_its_place() -> None:
    message = refusal(**{"cluster.training.tolerations": [{"key": "gpu"}, {"key": "gpu", "efect": "NoSchedule"}]})
    assert "cluster.training.tolerations.1.efect: unknown key. Did you mean 'effect'?" in message


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [("folder", "cleaning, column, kind, path"), ("libreoffice-help", "cleaning, kind")],
)
def test_a_kind_of_text_written_as_a_key_is_an_unknown_key_of_that_kind(kind: str, allowed: str) -> None:
    text = {"kind": kind, "folder": "texts"} | ({"path": "texts"} if kind == "folder" else {})
    assert f"text.folder: unknown key. Allowed here: {allowed}." in refusal(text=text)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"source": "de"}, "targets ['de', 'tr'] must be one or more, all different, without the source, 'de'."),
        ({"search.depths": [5]}, "search.depths [5] must be among encoder.mlm_heads [1, 2, 3]."),
        ({"encoder.width": 0}, "encoder.width: Input should be greater than 0 (given: 0)."),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, dict) else "",
)
def test_a_mistake_is_one_line_with_one_key_and_one_full_stop(changes: dict[str, Any], line: str) -> None:
    assert refusal(**changes).splitlines()[1:] == [f"  {line}"]


def test_every_mistake_is_listed_at_once() -> None:
    message = refusal(**{"nmae": "x", "encoder.width": 0, "adaptation.steps": "many"})
    assert [line.split(":")[0].strip() for line in message.splitlines()[1:]] == [
        "encoder.width",
        "adaptation.steps",
        "nmae",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(
            ({"encoder.mlm_heads": heads}, [f"encoder: mlm_heads {heads} must be {HEADS}."])
            for heads in ([1, 2], [2, 1, 3], [2, 2, 3], [0, 3], [3, 5])
        ),
        ({"encoder.mlm_heads": []}, ["encoder.mlm_heads is empty", "system MINIJOINT has no head", "'MINIPOST'"]),
        ({"encoder.width": 33}, ["encoder:", "33", "attention_heads 2"]),
        ({"pretraining.warmup_steps": 60}, ["pretraining:", "warmup_steps 60", "steps 60"]),
        ({"pretraining.steps": "60"}, ["pretraining.steps:", "integer", "given: '60'"]),
        ({"pretraining.learning_rate": float("inf")}, ["pretraining.learning_rate:", "finite"]),
        ({"pretraining.mask_rate": 0.0005}, ["pretraining.mask_rate 0.0005", "none of the 512 tokens"]),
        ({"pretraining.micro_batch_blocks": 5}, ["pretraining:", "micro_batch_blocks 5", "batch_blocks 16"]),
        (
            {"pretraining.micro_batch_blocks": 1, "pretraining.mask_rate": 0.01},
            ["pretraining.mask_rate 0.01 masks none of the 32 tokens at once"],
        ),
        ({"encoder.mlm_heads": [1, 3], "adaptation.depth": 2}, ["adaptation.depth [2]", "encoder.mlm_heads [1, 3]"]),
        ({"adaptation.depth": 4}, ["adaptation.depth:", "depth 4 must be from 1 to the primary's 3 layers"]),
        ({"source": "de"}, ["targets ['de', 'tr']", "source, 'de'"]),
        ({"targets": ["de", "de"]}, ["targets ['de', 'de']", "all different"]),
        ({"targets": ["deutsch"]}, ["targets.0:", "BCP 47", "given: 'deutsch'"]),
        ({"tasks.0.examples": {"german": "Wo?"}}, ["tasks.0.examples.german:", "BCP 47"]),
        ({"alignment.parallel": {"de": ["a", "b", "c"]}}, ["alignment.parallel.de:", "given: ['a', 'b', 'c']"]),
        (
            {"alignment.parallel": {"de": ["a", "a"]}},
            ["alignment.parallel.de:", "two different files", "given: ['a', 'a']"],
        ),
        ({"alignment.pairs": {}}, ["alignment.pairs: unknown key", "dictionary, judged, mined, parallel"]),
        (
            {"alignment": {"parallel": {"de": "de.tsv"}, "judged": {"de": "de.tsv"}}},
            ["judged names the files of parallel for ['de'], from which languages learn"],
        ),
        ({"adaptation.pairs": {}}, ["adaptation.pairs needs sentences", "['de', 'tr'] have none"]),
        ({"adaptation.pairs": {}, "alignment.mined": True}, ["initialisation = 'aligned'"]),
        (
            {"adaptation.pairs": {}, "alignment.parallel": {"de": "de.tsv", "tr": "tr.tsv"}},
            ["search.metric and gate.metric 'masked' is not what", "set it to 'alignment'"],
        ),
        (
            {"adaptation.pairs": {}, "alignment.parallel": {"de": "de.tsv", "tr": "tr.tsv"}, "search": None},
            ["gate.metric 'masked' is not what", "set it to 'alignment'"],
        ),
        ({"tasks.0.name": "My Task"}, ["tasks.0.name:", "lower-case", "given: 'My Task'"]),
        ({"tasks.0.finetuning.seeds": [1, 1]}, ["tasks.0.finetuning:", "seeds [1, 1]", "all different"]),
        (
            {"tasks": {"finetuning": {}, "examples": {"en": "a"}}},
            ["tasks: must be a list of sections that begin with [[tasks]]", "[tasks.finetuning], [tasks.examples]"],
        ),
        ({"search.depths": [1, 1]}, ["search:", "depths [1, 1]", "must all be different"]),
        ({"split": {"dev_share": 0.5, "test_share": 0.5}}, ["split:", "below 0.9"]),
        ({"text": {"kind": "web"}}, ["text:", "'libreoffice-help', 'folder', 'huggingface'"]),
        ({"text": {"path": "texts"}}, ["text.kind:", "libreoffice-help, folder, huggingface"]),
        ({"text": {"kind": "files", "paths": {"de": []}}}, ["text:", "paths of 'de', []", "one or more"]),
        ({"text": {"kind": "files", "paths": {"de": ["a", "a"]}}}, ["text:", "['a', 'a']", "all different"]),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, dict) else "",
)
def test_an_impossible_value_is_refused_with_its_key_and_what_is_allowed(
    changes: dict[str, Any], words: list[str]
) -> None:
    message = refusal(**changes)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("raw", ["{", "[]"])
def test_json_that_is_no_recipe_is_refused(raw: str) -> None:
    with pytest.raises(RecipeError, match="recipe is not usable"):
        Recipe.parse(raw)


def test_a_file_that_is_not_there_or_no_recipe_is_named(tmp_path: Path) -> None:
    broken, binary = tmp_path / "broken.toml", tmp_path / "binary.toml"
    broken.write_text("name = ")
    binary.write_bytes(b"name = '\xff'")
    unknown = tmp_path / "unknown.toml"
    unknown.write_text("nmae = 'x'")
    for path in (tmp_path / "absent.toml", tmp_path, broken, binary, unknown):
        with pytest.raises(RecipeError) as caught:
            Recipe.load(path)
        assert str(path) in str(caught.value)


def _without_section(text: str, section: str) -> str:
    return re.sub(rf"\[\[?{section}\]?\]\n([^\[\n].*\n)*", "", text)


@pytest.mark.parametrize("targets", [["tr"], ["el", "sw"]])
def test_targets_can_be_changed_alone(targets: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    text = (ROOT / "tests/tiny.toml").read_text().replace('targets = ["de", "tr"]', f"targets = {targets}")
    path.write_text(text.replace("'", '"'))
    recipe = Recipe.load(path)
    assert recipe.search
    assert recipe.search.language == targets[0]
    assert set(recipe.tasks[0].examples) == {"en"}
    assert Recipe.parse(recipe.to_json()) == recipe
    examples, search = capsys.readouterr().err.splitlines()
    assert f"mine.toml: task 'topic' names ['de'] in 'examples', which are not among {['en', *targets]}: " in examples
    assert f"search.language 'de' is not among the targets {targets}: the search is for '{targets[0]}'" in search


def test_resources_come_back_from_json() -> None:
    named = Recipe.parse(changed(alignment={"parallel": {"de": ["a.en", "a.de"]}, "dictionary": {"tr": "en-tr.txt"}}))
    assert named.alignment.parallel == {"de": ("a.en", "a.de")}
    assert Recipe.parse(named.to_json()) == named
    assert named.digest() != Recipe.parse(TINY).digest()


def test_resources_of_languages_that_are_no_targets_are_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    parallel, dictionary = '{ de = "en-de.tsv", el = "en-el.tsv" }', '{ sw = "en-sw.txt", tr = "en-tr.txt" }'
    given = f"[alignment]\nparallel = {parallel}\ndictionary = {dictionary}\n"
    path.write_text((ROOT / "tests/tiny.toml").read_text() + given)
    recipe = Recipe.load(path)
    assert recipe.alignment.parallel == {"de": "en-de.tsv"}
    assert recipe.alignment.dictionary == {"tr": "en-tr.txt"}
    parallel, dictionary, unused = capsys.readouterr().err.splitlines()
    assert "alignment.parallel names ['el'], which are not among the targets ['de', 'tr']: ignored" in parallel
    assert "alignment.dictionary names ['sw']" in dictionary
    assert "alignment.dictionary is not used: adaptation.initialisation is overlap." in unused


def test_sections_of_a_task_that_was_removed_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(_without_section((ROOT / "recipes/demo-scratch.toml").read_text(), "tasks"))
    with pytest.raises(RecipeError) as caught:
        Recipe.load(path)
    [line] = str(caught.value).splitlines()[1:]
    assert "must be a list of sections that begin with [[tasks]]" in line
    assert "there is [tasks.finetuning], [tasks.examples], [tasks.label_names]. Write [[tasks]]" in line
    assert "before; or, for no tasks, remove" in line


def test_what_a_recipe_lacks_is_said_when_it_is_asked_for() -> None:
    recipe = Recipe.parse({key: value for key, value in TINY.items() if key not in ("tasks", "search")})
    with pytest.raises(RecipeError, match=r"one task to name: its \[\[tasks\]\] are \[\]"):
        recipe.task()
    with pytest.raises(RecipeError, match=r"\[search\]"):
        recipe.require_search()
    with pytest.raises(RecipeError, match=r"'el' .* \['en', 'de', 'tr'\]"):
        recipe.require_language("el")


def test_text_of_ones_own_replaces_the_recipes(tmp_path: Path) -> None:
    recipe = Recipe.parse(changed(text={"kind": "libreoffice-help"})).with_folder(tmp_path)
    assert recipe.text == Folder(kind="folder", path=str(tmp_path))
    assert Recipe.parse(recipe.to_json()) == recipe


def test_a_section_with_pre_norm_begins_with_moderns_settings() -> None:
    narrow = Family.model_validate({"pre_norm": {"local_tokens": 64}})
    modern = Family.model_validate("modern")
    assert modern.pre_norm
    assert narrow == modern.model_copy(update={"pre_norm": modern.pre_norm.model_copy(update={"local_tokens": 64})})
    assert Family.model_validate(narrow.model_dump()) == narrow
    for table in ("segments", "position_offset"):
        with pytest.raises(ValidationError, match=rf"{table}.* 2.*has tables of neither"):
            Family.model_validate({"pre_norm": {}, table: 2})


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text((ROOT / "tests/tiny.toml").read_text(), encoding="utf-8-sig")
    assert Recipe.load(tmp_path / "recipe.toml") == Recipe.load(ROOT / "tests/tiny.toml")


def test_static_vectors_are_needed_where_rows_are_aligned_and_the_primary_has_a_head() -> None:
    found = {
        name: load_recipe(ROOT / f"recipes/{name}.toml").needs_vectors for name in ("demo-scratch", "demo", "base")
    }
    assert found == {"demo-scratch": True, "demo": False, "base": False}
