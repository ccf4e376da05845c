"""Records of measurements, on disk as soon as it is, so that an interrupted comparison goes on where it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pages import read_record, write_record
from lingraft.errors import LingraftError


class OtherMachineError(LingraftError):
    """Records are of another machine, of other versions or of another batch."""


class Records:
    """A JSON file of records by kind and name, all of one machine and one batch."""

    def __init__(self, path: Path, batch: str, machine: dict[str, str]) -> None:
        """Open them, or begin.

        Args:
            path: path of the file.
            batch: tokens of an update, in words.
            machine: device and versions.

        Raises:
            OtherMachineError: they were measured with another batch, on another device or with other versions.
        """
        self._path = path
        self.found: dict[str, Any] = read_record(path) if path.exists() else {}
        held = self.found.setdefault("machine", {batch: machine})
        if held != {batch: machine}:
            raise OtherMachineError(
                f"{path} holds what was measured with {held}, but this is { ({batch: machine}) }: the two do not "
                "compare. Give another --out, or move that file away."
            )

    def get(self, kind: str, name: str, measure: Callable[[], Any]) -> Any:
        """A record, measured if there is none yet."""
        of_kind = self.found.setdefault(kind, {})
        if name not in of_kind:
            of_kind[name] = measure()
            print(kind, name, json.dumps(of_kind[name])[:200], sep=" | ", flush=True)
            write_record(self._path, self.found)
        return of_kind[name]
