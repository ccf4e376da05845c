"""Sources of a recipe's text, and the split of its documents."""

from typing import Annotated, ClassVar, Literal, Self

import pydantic
from pydantic import Field

from lingraft.config.section import Language, Section, Share


class Split(Section):
    """Split of documents by a hash of their name, alike in all languages."""

    dev_share: Share = Field(0.1, description="Share of documents for choices made on the way.")
    test_share: Share = Field(0.2, description="Share of documents for reported scores only.")

    @pydantic.model_validator(mode="after")
    def _leaves_text_to_train_on(self) -> Self:
        if self.dev_share + self.test_share >= 0.9:
            raise ValueError("dev_share + test_share must stay below 0.9, or too little is left to train on")
        return self


class Cleaning(Section):
    """Cleaning of text before it is split; a paragraph is a line of a document that is not blank.

    Text is brought into Unicode's form NFC. Characters that nobody can see (control, zero-width, private and unassigned
    ones) are removed, and white space becomes single spaces. A paragraph is kept once, where it is first read, in all
    splits: paragraphs are compared by 128-bit hashes that are sorted on disk, so that memory does not grow with the
    text; while it runs, the disk of the output holds a copy of the cleaned text and 24 bytes a paragraph.
    """

    min_characters: ClassVar = 5
    max_characters: ClassVar = 100_000
    """Lengths of the shortest and of the longest paragraph that is kept."""
    max_digit_share: ClassVar = 0.3
    max_symbol_share: ClassVar = 0.4
    """Largest shares of a paragraph's characters that may be digits, and punctuation and symbols."""
    max_repetition_share: ClassVar = 0.4
    """Largest share of a paragraph that a sequence of three words (of eight characters, where spaces do not part words)
    may cover if it occurs three times or more."""


TEXT_COLUMN = "text"
"""Column or key of records that holds the text, unless a recipe names another."""


class _Cleanable(Section):
    cleaning: Cleaning | None = Field(None, description="Cleaning of the text. Absent: text is taken as it is.")


class LibreOfficeHelp(_Cleanable):
    """LibreOffice's help pages from Debian's packages: parallel pages, labelled by the part of the product."""

    kind: Literal["libreoffice-help"] = Field(description="Says that text comes from here.")


class _OfFiles(_Cleanable):
    column: str = Field(
        TEXT_COLUMN,
        min_length=1,
        description="Column of Parquet, CSV and TSV, or key of JSONL, that holds the text.",
    )


class Folder(_OfFiles):
    """Files of one's own, a file or folder a language.

    They are plain text (.txt), pages (.md, .html), or records with a column of text (.jsonl, .csv, .tsv, .parquet), all
    but Parquet optionally .gz, .xz or .zst. A plain text file has one document a line, or documents separated by blank
    lines; in a folder with sub-folders, which are labels, it is one document.
    """

    kind: Literal["folder"] = Field(description="Says that text comes from here.")
    path: str = Field(
        description="Folder, here or as a URI (s3://, gs://, az://), that holds for each language a file such as "
        "<language>.txt or <language>.jsonl.gz, or a folder <language>/."
    )


class HuggingFace(_Cleanable):
    """A dataset by its Hugging Face id (or a local dataset folder)."""

    kind: Literal["huggingface"] = Field(description="Says that text comes from here.")
    dataset: str = Field(description="Dataset id or local folder; '{language}' in it is replaced by the language.")
    configuration: str | None = Field(None, description="Configuration; '{language}' is replaced by the language.")
    split: str = Field("train", description="Split of the dataset that is read; ours is made anew, by [split].")
    streaming: bool = Field(False, description="Read rows as they arrive, in place of downloading the whole first.")
    revision: str | None = Field(
        None, description="Branch, tag or commit on the hub; 'refs/convert/parquet' where main is a loading script."
    )
    text_column: str = Field("text", description="Column that holds the text.")
    label_column: str | None = Field(None, description="Column that holds the label; a task needs one.")
    name_column: str | None = Field(None, description="Column that names a document alike in all languages.")
    names: dict[Language, str] = Field({}, description="What the dataset calls a language, where it is not its tag.")


class Files(_OfFiles):
    """Files of one's own, whatever their names.

    Each is read as a folder's are, see `Folder`; sub-folders of one that is named, but not of a pattern, are labels.
    """

    kind: Literal["files"] = Field(description="Says that text comes from here.")
    paths: dict[Language, tuple[str, ...]] = Field(
        description="Each language's files, folders of files and patterns such as 'news/*.txt', here or as URIs "
        "(s3://, gs://, az://), in the order in which they are read."
    )

    @pydantic.model_validator(mode="after")
    def _differ(self) -> Self:
        for language, paths in self.paths.items():
            if not paths or len(set(paths)) < len(paths):
                raise ValueError(f"paths of {language!r}, {list(paths)}, must be one or more, all different")
        return self


TextSource = Annotated[LibreOfficeHelp | Folder | HuggingFace | Files, Field(discriminator="kind")]
