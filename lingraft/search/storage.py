"""Storage of trials: PostgreSQL for workers anywhere, a journal or SQLite for those of one machine, or memory."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lingraft.artifacts.addresses import sqlite_file, without_password
from lingraft.console import say
from lingraft.errors import MissingExtraError, TrackingError
from lingraft.retry import retry, seconds_from_environment

try:
    import optuna
    from optuna.storages import BaseStorage, JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
    from sqlalchemy import event
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise MissingExtraError("optuna", "search") from error

WAIT_VARIABLE = "LINGRAFT_STORAGE_WAIT_S"
"""Environment variable: seconds to wait for a locked SQLite file, or for a database server that went away."""
_WAIT_S = 60.0
_RACE_WAIT_S = 30.0
"""Time for the other process to make the tables: a second, but far more on a busy machine or a network drive."""
_JOURNAL = "journal:///"
_SQLITE = "sqlite"
_RACE_ERRORS = "already exists", "UNIQUE constraint failed", "duplicate key"
"""Messages of databases to the second of two processes that create the tables at the same time."""
STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
"""Errors that an unusable storage raises."""


class StorageError(TrackingError):
    """The storage of a search cannot be used, perhaps only for a while."""

    heals = True


class _RepairingLock(JournalFileSymlinkLock):
    """Lock of a journal; whoever acquires it first cuts off an incomplete last entry.

    A full disk or a loss of power leaves such an entry. Nobody has read it; the next entry would be appended to the
    same line, and be lost with it.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal

    def acquire(self) -> bool:
        """Wait for the lock; a lock whose owner has not written for 30 s is broken."""
        acquired = super().acquire()
        try:
            with self._journal.open("rb+") as entries:
                _truncate_torn_entry(entries)
        except BaseException:
            self.release()
            raise
        return acquired


def _truncate_torn_entry(entries: BinaryIO) -> None:
    end = entries.seek(0, os.SEEK_END)
    whole = end
    while whole and entries.seek(whole - 1) >= 0 and entries.read(1) != b"\n":
        whole -= 1
    if whole < end:
        say(f"the last {end - whole} bytes of {entries.name} are no whole entry, and were cut off")
        entries.truncate(whole)


class OpenStorage(NamedTuple):
    """A storage, and the function that closes its connections."""

    storage: BaseStorage
    close: Callable[[], None]


def open_storage(address: str | None) -> OpenStorage:
    """Open the storage at an address; without an address, in memory."""
    if address is None:
        return OpenStorage(optuna.storages.InMemoryStorage(), lambda: None)
    with explain_errors(address):
        if address.startswith(_JOURNAL):
            # Absolute: its lock is a link to it, and who looks for the age of a link that leads nowhere spins for ever.
            journal = Path(address.removeprefix(_JOURNAL)).absolute()
            return OpenStorage(JournalStorage(JournalFileBackend(str(journal), _RepairingLock(journal))), lambda: None)
        database = _database(address)
        if not address.startswith(_SQLITE):
            event.listen(database.engine, "do_connect", _reconnect)
        return OpenStorage(optuna.storages.get_storage(database), database.engine.dispose)


def require_exists(address: str) -> None:
    """Refuse the address of a file that does not exist, which opening the storage would create."""
    is_journal = address.startswith(_JOURNAL)
    file = Path(address.removeprefix(_JOURNAL) if is_journal else sqlite_file(address)).absolute()
    if (is_journal or address.startswith(_SQLITE)) and not file.is_file():
        raise TrackingError(
            f"the Optuna storage {without_password(address)} is not there: there is no file {file}. Nothing was "
            "created. Give the storage that a search has used, such as sqlite:///.demo/optuna.db."
        )


@contextlib.contextmanager
def explain_errors(address: str | None) -> Iterator[None]:
    """Turn errors of a storage into one that names the storage, the reason and what to do."""
    is_journal = (address or "").startswith(_JOURNAL)
    name = without_password(address or "in memory")
    try:
        yield
    except ValueError as error:
        if not is_journal:
            raise
        raise StorageError(
            f"the Optuna storage {name} is damaged: one of its lines is no entry ({error}). Delete that line, or put a "
            "copy of the file in its place. A new file begins the search anew, but for checkpoints of trials that had "
            "not ended."
        ) from error
    except (*STORAGE_ERRORS, OSError) as error:
        if isinstance(error, OSError) and not is_journal:
            raise
        reason = str(error.__cause__ or error).splitlines()[0]
        if "locked" in reason:
            raise StorageError(
                f"the Optuna storage {name} is locked: another connection has held it for more than {_wait_s():g} s "
                f"({WAIT_VARIABLE}). End what holds it, such as a backup or a shell of sqlite3, and run the same "
                "again: trials go on from their checkpoints. Where many workers share a storage, use PostgreSQL."
            ) from error
        raise StorageError(
            f"the Optuna storage {name} cannot be used: {reason}. Give the URL of a database that can be written, such "
            "as sqlite:///optuna.db, or journal:////shared/optuna.log, and see that its folder or server is there."
        ) from error


def _database(address: str) -> RDBStorage:
    """Open a database; retry if another process creates its tables at the same time."""
    waits = {"connect_args": {"timeout": _wait_s()}} if address.startswith(_SQLITE) else {"pool_pre_ping": True}

    def is_race(error: Exception) -> bool:
        return any(words in f"{error} {error.__cause__}" for words in _RACE_ERRORS)

    return retry(
        lambda: RDBStorage(address, engine_kwargs=waits),
        is_transient=is_race,
        within_s=_RACE_WAIT_S,
        before_pause=lambda *_: say("another process makes the tables of the Optuna storage; it is tried again"),
    )


def _reconnect(dialect: Any, _record: object, arguments: list[Any], named: dict[str, Any]) -> Any:
    """Connect to a server that was reachable before, and wait for it while it restarts."""
    return retry(
        lambda: dialect.connect(*arguments, **named),
        is_transient=lambda error: isinstance(error, dialect.loaded_dbapi.OperationalError),
        within_s=_wait_s(),
        before_pause=lambda _, left_s: say(
            f"the server of the Optuna storage went away; it is waited for, {left_s:.0f} s at most"
        ),
        last_pause_s=1.0,
    )


def _wait_s() -> float:
    return seconds_from_environment(WAIT_VARIABLE, _WAIT_S)
