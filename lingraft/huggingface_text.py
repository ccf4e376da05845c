"""Documents of one language from a Hugging Face dataset, by id or from a local dataset folder."""

from collections.abc import Iterator
from typing import Any

from lingraft.documents import Document, content_name
from lingraft.errors import MissingExtraError, TextError
from lingraft.task_config import TaskDataset
from lingraft.text_config import HuggingFace


def dataset_documents(source: HuggingFace, language: str) -> Iterator[Document]:
    """Yield a dataset's rows; class labels become their names, missing ones None, and a missing text "".

    Raises:
        MissingExtraError: the package `datasets` is not installed.
        TextError: the dataset or split cannot be loaded, lacks a column, or its text is not text.
    """
    dataset = load_rows(source, language, "[text] section")
    columns = [source.text_column, source.label_column, source.name_column]
    if missing := [column for column in columns if column is not None and column not in dataset.column_names]:
        raise TextError(
            f"dataset {source.dataset!r} has no column {missing[0]!r}; it has {dataset.column_names}. "
            "Set text_column, label_column and name_column in the recipe's [text] section."
        )
    for number, row in enumerate(dataset):
        text = "" if row[source.text_column] is None else row[source.text_column]
        if not isinstance(text, str):
            raise TextError(
                f"dataset {source.dataset!r}, row {number}: column {source.text_column!r} holds {text!r}, "
                f"not text. Set text_column to one of {dataset.column_names}."
            )
        text = text.strip()
        name = row[source.name_column] if source.name_column else None
        yield Document(content_name(text) if name is None else str(name), text, _label(dataset, source, row))


def load_rows(source: HuggingFace | TaskDataset, language: str, place: str) -> Any:
    """Open a split of a dataset (a `datasets.Dataset`: rows, `column_names`, `features`).

    Args:
        source: dataset, configuration and split; '{language}' in the first two is replaced.
        language: what by.
        place: where the recipe names the dataset, for errors.

    Raises:
        MissingExtraError: the package `datasets` is not installed.
        TextError: the dataset, its configuration or its split cannot be loaded.
    """
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise MissingExtraError("datasets", "data") from error
    name = source.names.get(language, language) if isinstance(source, HuggingFace) else language
    dataset = source.dataset.replace("{language}", name)
    configuration = source.configuration and source.configuration.replace("{language}", name)
    try:
        return datasets.load_dataset(dataset, configuration, split=source.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise TextError(
            f"dataset {dataset!r}, configuration {configuration!r}, split {source.split!r} cannot be loaded: "
            f"{str(error).rstrip('.')}. Check all three in the recipe's {place}, and the network."
        ) from error


def _label(dataset: Any, source: HuggingFace, row: dict[str, Any]) -> str | None:
    if source.label_column is None:
        return None
    label = row[source.label_column]
    feature = dataset.features[source.label_column]
    if hasattr(feature, "int2str"):
        # Class labels are counted from 0; -1 marks a row without a label.
        return None if label is None or label < 0 else str(feature.int2str(label))
    return None if label is None else str(label)
