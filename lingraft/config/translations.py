"""Parallel text and dictionaries of a recipe, by which rows of a new language are aligned with the source's."""

from collections.abc import Collection
from typing import Annotated, Self

import pydantic
from pydantic import BeforeValidator, Field

from lingraft.config.section import Language, Section


def _one_or_two(value: object) -> object:
    names = value if isinstance(value, list | tuple) else (value, "another")
    if len(names) != 2 or not all(isinstance(name, str) and name.strip() for name in names) or names[0] == names[1]:
        raise ValueError("must be one file of pairs, or two different files, the source language's first")
    return tuple(names) if isinstance(value, list) else value


ParallelText = Annotated[str | tuple[str, str], BeforeValidator(_one_or_two)]
"""One file of pairs, or a file in the source language and one in the target language, line by line."""


class Alignment(Section):
    """Resources beside text that show which pieces of the source a language's pieces correspond to.

    A language uses the best that it has: parallel text, else pairs that are mined from text, else a dictionary, else
    its text alone.
    """

    parallel: dict[Language, ParallelText] = Field(
        {},
        description="Sentences with their translations, by language: one file of source<TAB>target a line, such as "
        "{ de = 'en-de.tsv' }; a .csv, .tmx or .jsonl file of pairs; or two files line by line, the source's first, as "
        "Moses and OPUS have them, such as { tr = ['news.en', 'news.tr'] }; here or as URIs, plain or .gz, .xz or "
        ".zst. A few thousand lines help; the measure of transfer uses them, too.",
    )
    judged: dict[Language, ParallelText] = Field(
        {},
        description="Further sentences with their translations, by language and in the same form, that nothing is "
        "learned from: the measure of transfer takes them in place of lines of `parallel`.",
    )
    dictionary: dict[Language, Annotated[str, Field(min_length=1)]] = Field(
        {},
        description="Word lists from the source language, by language, for those without parallel text, such as "
        "{ el = 'en-el.txt' }: lines of a word, a space or tab and its translation, such as MUSE's; FreeDict's folder "
        "or .index file, or a Debian package with them, such as 'apt:dict-freedict-eng-ell'. A list from the language "
        "to the source is recognised and turned round.",
    )

    mined: bool = Field(
        False,
        description="Mine sentence pairs, for languages without parallel text, from the source's and the language's "
        "lines in [text], which should be about the same things, such as a search's documents and what people write; a "
        "dictionary is where mining begins. [adaptation.pairs] learns by them, too.",
    )

    @pydantic.model_validator(mode="after")
    def _judges_what_is_not_learned(self) -> Self:
        if both := [language for language, files in self.judged.items() if files == self.parallel.get(language)]:
            raise ValueError(
                f"judged names the files of parallel for {both}, from which languages learn. Leave them out of judged: "
                "of parallel, some lines are held out for the measure"
            )
        return self

    def only_in(self, languages: Collection[str]) -> Self:
        """Return the section without files for other languages."""
        parallel = {language: files for language, files in self.parallel.items() if language in languages}
        judged = {language: files for language, files in self.judged.items() if language in languages}
        dictionary = {language: file for language, file in self.dictionary.items() if language in languages}
        return self.model_copy(update={"parallel": parallel, "judged": judged, "dictionary": dictionary})
