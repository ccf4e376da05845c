"""`python -m docs.recipe_reference`: write docs/reference/recipe.md from the pydantic models of recipes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe

PAGE = Path(__file__).parent / "reference" / "recipe.md"
_INTRODUCTION = """\
# Recipe

A recipe is a TOML file with all settings of a project; `recipes/` has examples. Unknown keys and impossible values are
refused with the key and what is allowed. `make reference` writes this page from the models in `lingraft/config/`."""
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_REFERENCE = "#/$defs/"

Schema = dict[str, Any]


def page() -> str:
    """Return the page in Markdown: a table of keys for each section."""
    schema = Recipe.model_json_schema()
    return "\n\n".join([_INTRODUCTION, *_sections(schema, schema["$defs"])]) + "\n"


def _sections(schema: Schema, definitions: dict[str, Schema]) -> Iterator[str]:
    """Yield the keys outside any section, then every section once, under all paths at which it may stand."""
    yield f"## Top level\n\n{_table(schema, definitions)}"
    paths: dict[str, list[str]] = {}
    _collect_paths(schema, "", definitions, paths)
    alternatives = {name: heading for heading, names in _by_heading(paths).items() for name in names}
    written: set[str] = set()
    for name, heading in alternatives.items():
        definition = definitions[name]
        title = "" if heading in written else f"## {heading}\n"
        written.add(heading)
        keys = definition["properties"]
        if (kind := keys.get("kind", {}).get("const")) and keys.pop("kind"):
            title += f"**`kind = {json.dumps(kind)}`**: "
        table = [_table(definition, definitions)] if keys else []
        yield "\n\n".join([title + _one_line(definition["description"]), *table])


def _by_heading(paths: dict[str, list[str]]) -> dict[str, list[str]]:
    """Group definitions that are alternatives of one another, by the heading that names their paths."""
    grouped: dict[str, list[str]] = {}
    for name, places in paths.items():
        grouped.setdefault(", ".join(f"`{place}`" for place in dict.fromkeys(places)), []).append(name)
    return grouped


def _collect_paths(node: Schema, path: str, definitions: dict[str, Schema], paths: dict[str, list[str]]) -> None:
    for key, value in node["properties"].items():
        place = f"{path}.{key}" if path else key
        for found, name in _tables_in(value, place, definitions):
            known = name in paths
            paths.setdefault(name, []).append(f"[[{found}]]" if value.get("type") == "array" else f"[{found}]")
            if not known:
                _collect_paths(definitions[name], found, definitions, paths)


def _tables_in(value: Schema, place: str, definitions: dict[str, Schema]) -> Iterator[tuple[str, str]]:
    """Yield path and definition of every table that a key may hold."""
    inner = [value["items"]] if "items" in value else []
    for option in [*value.get("anyOf", []), *value.get("oneOf", []), *inner]:
        yield from _tables_in(option, place, definitions)
    if isinstance(named := value.get("additionalProperties"), dict):
        yield from _tables_in(named, f"{place}.NAME", definitions)
    if (name := _definition_of(value)) and "properties" in definitions[name]:
        yield place, name


def _definition_of(value: Schema) -> str | None:
    return value["$ref"].removeprefix(_REFERENCE) if "$ref" in value else None


def _table(node: Schema, definitions: dict[str, Schema]) -> str:
    required = node.get("required", [])
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, value in node["properties"].items():
        default = "required" if key in required else _default(value)
        cells = [f"`{key}`", _type(value, definitions), default, _one_line(value.get("description", ""))]
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows)


def _default(value: Schema) -> str:
    default = value.get("default")
    if isinstance(default, dict) and default:
        return "its defaults"
    return "absent" if default in (None, [], {}) else f"`{json.dumps(default, ensure_ascii=False)}`"


def _type(value: Schema, definitions: dict[str, Schema]) -> str:
    """Describe the values that a key takes."""
    if name := _definition_of(value):
        return _type(definitions[name], definitions)
    if options := [each for each in value.get("anyOf", value.get("oneOf", [])) if each.get("type") != "null"]:
        return " or ".join(dict.fromkeys(_type(option, definitions) for option in options))
    if "const" in value or "enum" in value:
        return ", ".join(f"`{json.dumps(each)}`" for each in value.get("enum", [value.get("const")]))
    if value["type"] == "array":
        inner = value.get("items") or value["prefixItems"][0]
        return f"list of {_type(inner, definitions)}"
    if value["type"] == "object":
        inner = value.get("additionalProperties")
        return f"table of {_type(inner, definitions)}" if isinstance(inner, dict) else "table"
    bounds = [f"{sign} {value[key]:g}" for key, sign in _BOUNDS.items() if key in value]
    return " ".join([_TYPES[value["type"]], ", ".join(bounds)]).strip()


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;")  # <language> would be taken for HTML


if __name__ == "__main__":
    write_text(PAGE, page())
