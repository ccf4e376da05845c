"""Where a recipe's text comes from, and how its documents are divided."""

from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field

from lingraft.section import Language, Section, Share


class Split(Section):
    """How documents are divided, by a hash of their name, alike in all languages."""

    dev_share: Share = Field(0.1, description="Share of documents for choices made on the way.")
    test_share: Share = Field(0.2, description="Share of documents for reported scores only.")

    @pydantic.model_validator(mode="after")
    def _leaves_text_to_train_on(self) -> Self:
        if self.dev_share + self.test_share >= 0.9:
            raise ValueError("dev_share + test_share must stay below 0.9, or too little is left to train on")
        return self


class LibreOfficeHelp(Section):
    """LibreOffice's help pages from Debian's packages: parallel pages, labelled by the part of the product."""

    kind: Literal["libreoffice-help"] = Field(description="Says that text comes from here.")
    licence: Literal["MPL-2.0"] = Field("MPL-2.0", description="By the packages' copyright files.")


class Folder(Section):
    """Files of one's own: plain text or JSONL, optionally .gz, .xz or .zst, one file or folder a language."""

    kind: Literal["folder"] = Field(description="Says that text comes from here.")
    path: str = Field(description="Folder that holds <language>.txt, <language>.jsonl(.gz|.xz|.zst) or <language>/.")
    licence: str | None = Field(None, description="Licence of the text, for model cards; 'not stated' if absent.")


class HuggingFace(Section):
    """A dataset by its Hugging Face id (or a local dataset folder)."""

    kind: Literal["huggingface"] = Field(description="Says that text comes from here.")
    dataset: str = Field(description="Dataset id or local folder; '{language}' in it is replaced by the language.")
    configuration: str | None = Field(None, description="Configuration; '{language}' is replaced by the language.")
    split: str = Field("train", description="Split of the dataset that is read; ours is made anew, by [split].")
    revision: str | None = Field(
        None, description="Branch, tag or commit on the hub; 'refs/convert/parquet' where main is a loading script."
    )
    text_column: str = Field("text", description="Column that holds the text.")
    label_column: str | None = Field(None, description="Column that holds the label; a task needs one.")
    name_column: str | None = Field(None, description="Column that names a document alike in all languages.")
    names: dict[Language, str] = Field({}, description="What the dataset calls a language, where it is not its tag.")
    licence: str | None = Field(None, description="Licence of the text, for model cards; 'not stated' if absent.")


class Files(Section):
    """Files of one's own, whatever their names: plain text or JSONL, optionally .gz, .xz or .zst."""

    kind: Literal["files"] = Field(description="Says that text comes from here.")
    paths: dict[Language, tuple[str, ...]] = Field(
        description="Each language's files, and folders of files, in the order in which they are read."
    )
    licence: str | None = Field(None, description="Licence of the text, for model cards; 'not stated' if absent.")

    @pydantic.model_validator(mode="after")
    def _differ(self) -> Self:
        for language, paths in self.paths.items():
            if not paths or len(set(paths)) < len(paths):
                raise ValueError(f"paths of {language!r}, {list(paths)}, must be one or more, all different")
        return self


TextSource = Annotated[LibreOfficeHelp | Folder | HuggingFace | Files, Field(discriminator="kind")]
