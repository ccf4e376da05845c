"""Optuna's search for the mini-model depth of a language: the best depth depends on the language (section 5.2, table
4).

Reading order: `budget` (the compute of a trial), `trial` (one training), `study` (the trials in a storage that workers
share), `outcome` (the result).
"""

from lingraft.errors import MissingExtraError

try:
    import matplotlib as _matplotlib  # noqa: F401
    import optuna as _optuna  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError(f"{error.name}", "search") from error

from lingraft.search.study import search, shared_storage, work
from lingraft.search.trial import Inputs

__all__ = ["Inputs", "search", "shared_storage", "work"]
