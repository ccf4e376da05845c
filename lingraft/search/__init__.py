"""Optuna's search for the mini-model depth of a language: the best depth depends on the language (section 5.2, table
4).

Reading order: `space` (the parameters), `budget` (the compute of a trial), `pruning` (when a trial stops early),
`shared_study` (trials in a storage that workers share), `trial` (one training), `worker` (the loop over trials),
`outcome` (the result), `plots` and `page`.
"""

from lingraft.search.worker import Inputs, search, shared_storage, work

__all__ = ["Inputs", "search", "shared_storage", "work"]
