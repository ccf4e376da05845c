"""Commands of `lingraft` in processes of their own, which are really killed, or may not do all that others may."""

import ctypes
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures import forked
from tests.fixtures.forked import Child

_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@dataclass
class Limits:
    file_bytes: int | None = None
    """Beyond which the kernel refuses to write a file: a full disk."""
    as_anybody: bool = False
    """Folders that are read-only are so for root, too."""


def start(arguments: list[str], log: Path, limits: Limits | None = None) -> Child:
    """Start `lingraft` with some arguments, and wait until it has begun; what it says goes to a file."""
    return forked.start(_run, arguments, limits or Limits(), log=log)


def run(arguments: list[str], log: Path) -> None:
    command = start(arguments, log)
    assert command.ends() == 0, command.said


def _run(arguments: list[str], limits: Limits) -> None:
    if limits.file_bytes is not None:
        sys.dont_write_bytecode = True  # or it would be cut short, as in `full_disk`
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, resource.RLIM_INFINITY))
    if limits.as_anybody:
        _lose_roots_rights()
    forked.lingraft(arguments)


def _lose_roots_rights() -> None:
    """Be refused what the mode of a folder refuses: from the effective capabilities, those that override it are taken.

    Anybody but root has none of them.
    """

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Data(ctypes.Structure):
        _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))

    libc = ctypes.CDLL(None, use_errno=True)
    header, data = Header(0x20080522, 0), (Data * 2)()
    if libc.capget(ctypes.byref(header), data):
        raise OSError(ctypes.get_errno(), "capget")
    keep = ~(1 << _CAP_DAC_OVERRIDE | 1 << _CAP_DAC_READ_SEARCH)
    data[0].effective &= keep
    if libc.capset(ctypes.byref(header), data):
        raise OSError(ctypes.get_errno(), "capset")
