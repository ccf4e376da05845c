"""Optuna's dashboard for the trials of searches."""

import os
import signal
from types import FrameType

from lingraft.console import say
from lingraft.errors import MissingExtraError, TrackingError
from lingraft.search.storage import explain_errors, open_storage, require_exists
from lingraft.signals import EXIT_CODES, signal_handler


def serve(address: str | None, host: str, port: int) -> None:
    """Serve the dashboard of all studies of a storage until the process is stopped.

    Args:
        address: address of the storage.
        host: address to listen on.
        port: port to listen on.
    """
    try:
        from optuna_dashboard import run_server
    except ModuleNotFoundError as error:
        raise MissingExtraError("optuna-dashboard", "search-dashboard") from error
    if address is None:
        raise TrackingError("there is no storage to look into. Give --storage, or set LINGRAFT_SEARCH_STORAGE.")
    with explain_errors(address):
        require_exists(address)
    storage, _ = open_storage(address)
    with explain_errors(address):
        names = [study.study_name for study in storage.get_all_studies()]
    say(f"{len(names)} searches on http://{host}:{port}/: {', '.join(names) or 'none yet'}. Ctrl-C ends it.")
    try:
        with signal_handler(_end):
            run_server(storage, host=host, port=port)
    except OSError as error:
        raise TrackingError(
            f"cannot listen on {host}, port {port}: {error.strerror}. Stop what listens there, or choose another port "
            "(--port) or address (--host)."
        ) from error


def _end(signal_number: int, _: FrameType | None) -> None:
    """Exit at once: there is no state to save, and the server would swallow an exception raised within a request."""
    os._exit(EXIT_CODES[signal.Signals(signal_number)])
