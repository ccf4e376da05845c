"""Settings that a user of Trainer may choose without changing what is learned, and the choices that are tried."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

REUSED_HEAP = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:glibc.malloc.top_pad=268435456"
"""Freed memory stays with the process; lingraft asks for the same of itself while it trains on a CPU."""


@dataclass(frozen=True)
class Settings:
    """The peer's."""

    optim: str = "adamw_torch_fused"
    attention: str = "sdpa"
    compiled: bool = False
    loader_workers: int = 0
    reused_heap: bool = False
    """No setting of Trainer: an environment variable, measured beside its best settings."""
    plain_loop: bool = False
    """No Trainer: a loop over transformers' model that computes logits at masked places only."""

    def __str__(self) -> str:
        mode = "torch_compile" if self.compiled else "not compiled"
        heap = ", heap reused" if self.reused_heap else ""
        return f"{self.optim}, {self.attention}, {mode}, {self.loader_workers} loader workers{heap}"

    @staticmethod
    def alternatives() -> Iterator[dict[str, Any]]:
        """Choices that differ from the defaults, one at a time."""
        yield {"attention": "eager"}
        yield {"optim": "adamw_torch"}
        yield {"loader_workers": 2}
        yield {"compiled": True}

    def plain(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return asdict(self)

    def environment(self) -> dict[str, str]:
        """Return the environment of its process."""
        return {**os.environ, **({"GLIBC_TUNABLES": REUSED_HEAP} if self.reused_heap else {})}
