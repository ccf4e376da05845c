"""Base of all sections of a recipe: immutable and strict, with errors that name the allowed values."""

import difflib
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, Field


def full_match(pattern: str, allowed: str) -> AfterValidator:
    """A check that a string matches a pattern as a whole; the error says what is allowed."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {allowed}")
        return value

    return AfterValidator(check)


Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Language = Annotated[
    str,
    full_match(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", "a BCP 47 tag, such as 'de' or 'pt-BR'"),
    Field(description="BCP 47 tag, such as 'de'."),
]
Name = Annotated[str, full_match(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", "lower-case letters, digits and inner dashes")]


class Section(pydantic.BaseModel):
    """A part of a recipe: immutable, and strict about what it does not know."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def explain_problem(root: type[Section], problem: Any, options: Mapping[str, str] = {}) -> str:
    """Return a line for one of pydantic's errors: the key's path, what is wrong, and what is allowed there.

    `options` set keys, and stand before them.
    """
    path, sections = _locate(root, problem["loc"])
    key = ".".join(path) or "recipe"
    if option := options.get(".".join(path[:2])):
        key = f"{option} ({key})"
    if problem["type"] == "extra_forbidden":
        allowed = sorted({name for section in sections for name in section.model_fields})
        close = difflib.get_close_matches(path[-1], allowed, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return f"{key}: unknown key.{hint} Allowed here: {', '.join(allowed)}."
    if problem["type"] == "union_tag_not_found":
        kinds = [str(_kind_of(found)) for section in sections for found in _sections_at(section, path[-1])]
        return f"{key}.kind: missing. Allowed here: {', '.join(kinds)}."
    given = problem["input"]
    if problem["type"] in ("tuple_type", "list_type") and isinstance(given, dict) and _sections_at(root, path[-1]):
        inner = ", ".join(f"[{key}.{name}]" for name in given)
        return (
            f"{key}: must be a list of sections that begin with [[{key}]], but that line is missing, and there is "
            f"{inner or f'[{key}]'}. Write [[{key}]] and its keys before; or, for no {path[-1]}, remove all of them."
        )
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    shown = "" if isinstance(given, dict) else f" (given: {given!r})"
    prefix = "" if not path and _begins_with_key(root, message) else f"{key}: "
    return f"{prefix}{message}{shown}."


def _begins_with_key(root: type[Section], message: str) -> bool:
    """Whether a complaint about a whole recipe names its key itself, such as 'adaptation.depth: ...'."""
    return re.split(r"[.: ]", message, maxsplit=1)[0] in root.model_fields


def _locate(root: type[Section], location: tuple[int | str, ...]) -> tuple[list[str], list[type[Section]]]:
    """Keys of pydantic's location as they stand in the recipe, and the sections that the last one may belong to.

    Pydantic puts the tag of a discriminated union behind the union's key, and '[key]' behind a key that is wrong.
    """
    path: list[str] = []
    sections = [root]
    inside = [root]
    for part in location:
        tagged = [section for section in inside if _kind_of(section) == part]
        if part == "[key]":
            continue
        if len(inside) > 1 and tagged:
            inside = tagged
            continue
        path.append(str(part))
        if isinstance(part, str):
            sections = inside
            inside = [found for section in sections for found in _sections_at(section, part)]
    return path, sections


def _kind_of(section: type[Section]) -> str | None:
    kind = section.model_fields.get("kind")
    return str(typing.get_args(kind.annotation)[0]) if kind else None


def _sections_at(section: type[Section], key: str) -> list[type[Section]]:
    field = section.model_fields.get(key)
    return _sections_in(field.annotation) if field else []


def _sections_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, Section) else []
    return [found for argument in typing.get_args(annotation) for found in _sections_in(argument)]
