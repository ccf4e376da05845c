"""Pages: links lead somewhere, reference pages agree with the code, and docs/ stays small."""

import re
from collections.abc import Iterator
from pathlib import Path

from docs import recipe_reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
INCLUDED = [DOCS / "results" / name for name in ("transfer-reading.md",)]
"""Parts of pages, which stand in them."""
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
_NAMED = re.compile(
    r"`((?:lingraft|components|pipelines|benchmarks|tests|recipes|docker|manifests|docs)/[\w./-]+)(?:::(\w+))?`"
)
_MOST_BYTES, _MOST_LINES, _README_LINES = 2_000_000, 5_000, 120
_VARIABLE = re.compile(r"LINGRAFT_[A-Z_]+")


_BY_LANGUAGE = re.compile(r"^\[(tasks\.(examples|label_names)|.*\.dictionary|alignment\.\w+)\]\n(.+\n)+", re.MULTILINE)
"""Tables of a recipe whose keys are languages or labels."""


def links_of(page: Path) -> list[str]:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    found = [first or second for first, second in _LINK.findall(text)]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors_of(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    for link in links_of(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists():
            yield f"{link}: there is no {target}"
        elif anchor and anchor not in anchors_of(target):
            yield f"{link}: {target.name} has no heading '{anchor}', but {sorted(anchors_of(target))}"
        elif DOCS in page.parents and not target.is_relative_to(DOCS):
            yield f"{link}: leads out of docs/, where the website cannot follow"


def test_links_lead_somewhere() -> None:
    assert [(page.name, problem) for page in PAGES for problem in broken(page)] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n[a](#one) [b](#two) [c](missing.md) ![d](missing.png) [e](https://x.org)\n```\n[f](no)\n```\n"
    )
    assert [problem.partition(":")[0] for problem in broken(page)] == ["#two", "missing.md", "missing.png"]


def test_every_page_is_reached_from_the_index_and_stands_in_the_site() -> None:
    seen, coming = set(), [DOCS / "README.md"]
    while coming:
        page = coming.pop()
        if page not in seen:
            seen.add(page)
            targets = [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)]
            coming += [target for target in targets if target.suffix == ".md" and DOCS in target.parents]
    pages = {*DOCS.rglob("*.md")} - {*INCLUDED}
    assert pages - seen == set()
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    in_site = pages - {*(DOCS / "decisions").glob("0*.md")}  # which their index lists
    assert [page for page in in_site if page.relative_to(DOCS).as_posix() not in site] == []


def test_files_and_tests_that_pages_name_exist() -> None:
    named = {
        (page.name, *found)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for found in _NAMED.findall(page.read_text(encoding="utf-8"))
    }
    missing = [
        (page, path, test)
        for page, path, test in sorted(named)
        if not (ROOT / path).exists() or (test and f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_packages_that_the_concepts_describe_exist() -> None:
    _, _, section = (DOCS / "concepts.md").read_text(encoding="utf-8").partition("## Reading the code\n")
    packages = re.findall(r"`(\w+)/`", section.partition("\n## ")[0])
    top = {"lingraft", "components", "pipelines"}
    assert [name for name in packages if name not in top and not (ROOT / "lingraft" / name).is_dir()] == []


def test_the_recipe_reference_is_of_the_models() -> None:
    assert recipe_reference.PAGE.read_text(encoding="utf-8") == recipe_reference.page(), "run `make reference`"


def test_the_recipe_reference_names_every_key_of_the_shipped_recipes() -> None:
    page = recipe_reference.page()
    for recipe in (ROOT / "recipes").glob("*.toml"):
        text = _BY_LANGUAGE.sub("", recipe.read_text("utf-8"))
        keys = re.findall(r"^(\w+) =", text, re.MULTILINE)
        assert [key for key in keys if f"`{key}`" not in page] == []


def test_the_example_in_python_is_that_of_the_readme_which_other_tests_run() -> None:
    of_readme, of_reference = (
        re.findall(r"^```python\n.*?^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for page in (ROOT / "README.md", DOCS / "reference" / "python.md")
    )
    assert of_readme == of_reference[:1]


def test_the_python_reference_names_objects_that_there_are() -> None:
    named = re.findall(r"^::: ([\w.]+)\.(\w+)$", (DOCS / "reference" / "python.md").read_text("utf-8"), re.MULTILINE)
    assert named
    for module, name in named:
        source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{module}.{name}"


def variables_of(path: Path) -> set[str]:
    """Environment variables that a module names in strings that are no docstrings and no messages."""
    return {*re.findall(r"""["'](LINGRAFT_[A-Z_]+)["']""", path.read_text(encoding="utf-8"))}


def test_the_list_of_environment_variables_is_that_of_the_code() -> None:
    modules = [path for package in ("lingraft", "components", "pipelines") for path in (ROOT / package).rglob("*.py")]
    listed = re.findall(r"^\| `(LINGRAFT_\w+)`", (DOCS / "reference" / "environment.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set().union(*map(variables_of, modules)))


def test_other_pages_name_no_variable_that_is_not_listed() -> None:
    listed = set(_VARIABLE.findall((DOCS / "reference" / "environment.md").read_text(encoding="utf-8")))
    named = {name for page in PAGES for name in _VARIABLE.findall(page.read_text(encoding="utf-8"))}
    assert named - listed - set(_VARIABLE.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))) == set()


def test_docs_stay_small() -> None:
    files = [path for path in DOCS.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < _MOST_BYTES
    texts = [path for path in files if path.suffix in {".md", ".json", ".svg", ".py"}]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in texts) < _MOST_LINES


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < _README_LINES
