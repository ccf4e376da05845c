"""The source of a recipe: its language, and the model to begin with where none is pretrained."""

from typing import Any, Self

import pydantic
from pydantic import Field

from lingraft.config.section import Language, Section


class Source(Section):
    """Language of the primary, and the model that it is made from; a tag alone stands for the language."""

    language: Language = Field("en", description="Language of the primary and of the task's training documents.")
    model: str | None = Field(
        None,
        min_length=1,
        description="Pretrained model to begin with: a hub id such as 'sentence-transformers/all-MiniLM-L6-v2', a "
        "folder of its files, a primary of ours, or a registered one ('models:/NAME@champion'). Such a recipe has no "
        "[encoder] and no [pretraining].",
    )
    revision: str | None = Field(None, min_length=1, description="Branch, tag or commit of the model on the hub.")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _of_a_tag(cls, given: Any) -> Any:
        return {"language": given} if isinstance(given, str) else given

    @pydantic.model_validator(mode="after")
    def _revises_a_model(self) -> Self:
        if self.revision and self.model is None:
            raise ValueError(f"revision {self.revision!r} is that of a model, and none is named: set source.model")
        return self
