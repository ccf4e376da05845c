"""Reading of one language's documents from a Hugging Face dataset, by id or from a local dataset folder."""

from collections.abc import Iterator
from typing import Any

from lingraft.config.tasks import TaskDataset
from lingraft.config.text import HuggingFace
from lingraft.data.documents import Document, hash_name
from lingraft.errors import MissingExtraError, TextError

_PARQUET = "refs/convert/parquet"
"""Revision with the hub's Parquet conversion: a folder for each configuration, without a card that names them."""


def dataset_documents(source: HuggingFace, language: str) -> Iterator[Document]:
    """Yield a dataset's rows as documents; class labels become their names, missing ones None, a missing text "".

    A streaming source yields rows as they arrive and keeps nothing on disk.
    """
    dataset = load_rows(source, language, "[text] section")
    columns = [source.text_column, source.label_column, source.name_column]
    for number, row in enumerate(_iterate_rows(dataset, source)):
        # A stream of JSON lines knows its columns by its rows alone.
        if missing := [column for column in columns if column is not None and column not in row]:
            raise TextError(
                f"dataset {source.dataset!r}, row {number}, has no column {missing[0]!r}; it has {list(row)}. "
                "Set text_column, label_column and name_column in the recipe's [text] section."
            )
        text = "" if row[source.text_column] is None else row[source.text_column]
        if not isinstance(text, str):
            raise TextError(
                f"dataset {source.dataset!r}, row {number}: column {source.text_column!r} holds {text!r}, "
                f"not text. Set text_column to one of {list(row)}."
            )
        text = text.strip()
        name = row[source.name_column] if source.name_column else None
        place = f"dataset {source.dataset!r}, row {number}"
        yield Document(hash_name(text) if name is None else str(name), text, _label(dataset, source, row), place)


def _iterate_rows(dataset: Any, source: HuggingFace) -> Iterator[dict[str, Any]]:
    """Yield rows of a dataset; a stream is read only now, and may turn out damaged or unreachable."""
    if not source.streaming:
        yield from dataset
        return
    import aiohttp
    import datasets
    import pyarrow

    failures = OSError, ValueError, datasets.exceptions.DatasetsError, pyarrow.ArrowException, aiohttp.ClientError
    count = 0
    try:
        for row in dataset:
            count += 1
            yield row
    except failures as error:
        raise TextError(
            f"dataset {source.dataset!r} cannot be read on from row {count}: {str(error).rstrip('.')}. Check the "
            "network and the dataset's files, and start again; without streaming, what has arrived is kept."
        ) from error


def load_rows(source: HuggingFace | TaskDataset, language: str, place: str) -> Any:
    """Open a split of a dataset (a `datasets.Dataset`, or an `IterableDataset` of a source that streams)."""
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise MissingExtraError("datasets", "data") from error
    name = source.names.get(language, language) if isinstance(source, HuggingFace) else language
    dataset = source.dataset.replace("{language}", name)
    configuration = source.configuration and source.configuration.replace("{language}", name)
    chosen = {"data_dir" if source.revision == _PARQUET else "name": configuration}
    try:
        streaming = isinstance(source, HuggingFace) and source.streaming
        return datasets.load_dataset(
            dataset, split=source.split, revision=source.revision, streaming=streaming, **chosen
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        revision = f", revision {source.revision!r}" if source.revision else ""
        raise TextError(
            f"dataset {dataset!r}, configuration {configuration!r}, split {source.split!r}{revision} cannot be loaded: "
            f"{str(error).rstrip('.')}. Check them in the recipe's {place}, and the network."
        ) from error
    except RuntimeError as error:
        # The error has no type of its own: only its message tells a loading script from a defect.
        if "scripts are no longer supported" not in str(error):
            raise
        raise TextError(
            f"dataset {dataset!r} cannot be loaded: {str(error).rstrip('.')}. Set revision = {_PARQUET!r}, the hub's "
            f"own conversion, in the recipe's {place}; of a local folder, give one that holds data files and no script."
        ) from error


def _label(dataset: Any, source: HuggingFace, row: dict[str, Any]) -> str | None:
    if source.label_column is None:
        return None
    label = row[source.label_column]
    feature = (dataset.features or {}).get(source.label_column)
    if feature is not None and hasattr(feature, "int2str"):
        # Class labels are counted from 0; -1 marks a row without a label.
        return None if label is None or label < 0 else str(feature.int2str(label))
    return None if label is None else str(label)
