"""A body in ONNX Runtime; its input is rows of any language's token table.

Legend: B batch, T tokens, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lingraft.bundle.format import EMBEDDED, TYPES, VISIBLE
from lingraft.errors import MissingExtraError, ServingError
from lingraft.ranks import available_cores

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
_EXTRAS = {"onnxruntime": "cpu", "onnxruntime-gpu": "gpu"}
_SETTINGS = {CUDA: {"use_tf32": "0"}}
"""Session settings by provider. TF32, CUDA's default for float32, has 10 mantissa bits: self-tests would fail."""


@dataclass(frozen=True)
class Body:
    """A body and its head, without a language. Several threads may run it at once."""

    session: Any
    """An onnxruntime.InferenceSession."""

    @classmethod
    def open(cls, path: Path, provider: str = CPU) -> Self:
        """Open an exported body."""
        installed_runtime()
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            raise _unusable(provider, onnxruntime.get_available_providers())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = available_cores()
        session = onnxruntime.InferenceSession(path, options, [(provider, _SETTINGS.get(provider, {}))])
        # ONNX Runtime falls back to the CPU without an error.
        if session.get_providers()[0] != provider:
            raise _unusable(provider, session.get_providers())
        # It would do so again where a call to the provider fails while it runs.
        session.disable_fallback()
        return cls(session)

    @property
    def has_segments(self) -> bool:
        """Whether `run` needs segments."""
        return TYPES in {value.name for value in self.session.get_inputs()}

    def run(
        self,
        embedded_BTD: NDArray[np.float32],
        visible_BT: NDArray[np.bool_],
        types_BT: NDArray[np.int64] | None = None,
    ) -> dict[str, NDArray[np.float32]]:
        """Return the outputs by name; `format.OUTPUTS` lists those of each kind of bundle.

        `visible_BT` is True at tokens, of which every row has one; segment ids are given if the family has segments.
        """
        inputs = {EMBEDDED: embedded_BTD, VISIBLE: visible_BT} | ({} if types_BT is None else {TYPES: types_BT})
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, inputs), strict=True))


def default_provider() -> str:
    """Return the execution provider of the installed ONNX Runtime: CUDA for onnxruntime-gpu, else the CPU."""
    return CUDA if installed_runtime() == "onnxruntime-gpu" else CPU


def installed_runtime() -> str:
    """Return the name of the installed distribution of ONNX Runtime."""
    found = [name for name in _EXTRAS if any(True for _ in metadata.distributions(name=name))]
    if not found:
        raise MissingExtraError("onnxruntime", "cpu")
    if len(found) > 1:
        raise ServingError(
            f"{' and '.join(found)} are both installed, and overwrite each other's files. Remove both "
            f"(pip uninstall {' '.join(found)}), then install one: pip install 'lingraft[cpu]' or 'lingraft[gpu]'."
        )
    return found[0]


def _unusable(provider: str, providers: Sequence[str]) -> ServingError:
    return ServingError(
        f"ONNX Runtime cannot use {provider}, only {list(providers)}. Install its driver and libraries (CUDA and "
        "cuDNN for lingraft[gpu]), or the CPU's runtime: pip install 'lingraft[cpu]'."
    )
