"""Optuna's search of a language's mini-model depth: the best one depends on the language (section 5.2, table 4).

In the order of reading: `space` (what is tried), `budget` (the compute it may cost), `rule` (when a trial is hopeless),
`board` (the trials in a storage that workers share), `training` (one trial), `worker` (trial after trial), `outcome`
(what was found), `drawings` and `page`.
"""

from lingraft.search.worker import Inputs, search, shared_storage, work

__all__ = ["Inputs", "search", "shared_storage", "work"]
