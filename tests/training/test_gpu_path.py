"""What a GPU is told in a step, on a machine without one: the path of other devices, on torch's meta device.

A meta tensor has no values: whoever asks for one, as a wait for the device would, gets an error.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lingraft.config.encoder import EncoderShape, Family
from lingraft.model.encoder import Encoder, freeze_except
from lingraft.tasks.classification import Classification, Classified
from lingraft.tasks.pairs import Encoded
from lingraft.training import precision
from lingraft.training.batches import MaskedLmBatch, task_stream, to_device
from lingraft.training.loop import Plan, TrainingLoop
from lingraft.training.masked_lm import MaskedLmLoss
from lingraft.training.optimizer import Optimizer, SkippedSteps
from lingraft.training.run import _TaskLoss
from lingraft.training.schedule import Schedule

META, VOCABULARY, TOKENS = torch.device("meta"), 300, 512
WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.equal.default}
"""Operations whose result the host needs."""
COPY = torch.ops.aten._to_copy.default


class NoWaiting(TorchDispatchMode):
    """Refuses what the host waits for, and sparse gradients, whose rows a GPU would add in no fixed order."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Compute an operation, or refuse it."""
        given = kwargs or {}
        assert func not in WAITS, f"{func} waits for the device"
        assert "sparse" not in func.name(), f"{func} leads to a sum in no fixed order"
        moves = func is COPY and given.get("device") not in (None, args[0].device)
        assert not moves or given.get("non_blocking"), f"a copy from {args[0].device} is waited for"
        return func(*args, **given)


def encoder(family: str) -> Encoder:
    shape = EncoderShape(
        width=128,
        layers=3,
        attention_heads=2,
        mlm_heads=(2, 3),
        block_tokens=TOKENS,
        dropout=0.1,
        family=Family.model_validate(family),
    )
    return Encoder(shape, VOCABULARY).train()


@pytest.mark.parametrize("part", ["everything", "embeddings"])
@pytest.mark.parametrize("family", ["roberta", "modern"])
def test_masked_language_modelling_waits_for_no_device(family: str, part: str) -> None:
    model = encoder(family)
    loss_of = MaskedLmLoss(model, (2, 3), 0.15, 1)
    loss_of.pieces = to_device(loss_of.pieces, META)
    model.to(META)
    trained = freeze_except(model, (model if part == "everything" else model.vocabulary).parameters())
    with NoWaiting():
        loss = loss_of(MaskedLmBatch(torch.zeros(4, TOKENS, dtype=torch.long), 0))
        loss.backward()
    assert loss.device == META
    assert {parameter for parameter in model.parameters() if parameter.grad is not None} == {*trained}


def test_finetuning_waits_for_no_device() -> None:
    net = Classification().net(encoder("roberta"), ["yes", "no"]).to(META)
    data = Classified(Encoded([[5, 6, 7], [8, 9]], None, [3, 2]), torch.tensor([0, 1]), 1)
    ((_, batch),) = task_stream(data, 2, seed=1)(1)
    with NoWaiting():
        _TaskLoss(net, Classification())(batch).backward()
    assert net.out.weight.grad is not None


def test_clipping_stepping_and_counting_skipped_steps_ask_for_no_value() -> None:
    parameters = [nn.Parameter(torch.ones(4, 4)) for _ in range(3)]
    optimizer, skipped = Optimizer(parameters, 0.1, 1.0), SkippedSteps([])
    for step in range(1, 4):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, torch.inf if step == 2 else 1.0)
        with NoWaiting():
            skipped.add(step, optimizer.clip(torch.ones(())))
            optimizer.step(0.1)
    skipped.settle()
    assert skipped.steps == [2]


class Multiplies(nn.Module):
    """A loss that notes in which format float32 matrices are multiplied, forwards and backwards."""

    def __init__(self, noted: list[bool]) -> None:
        super().__init__()
        self.weight, self.noted = nn.Parameter(torch.ones(())), noted

    def forward(self, batch: Tensor) -> Tensor:
        """Return the loss, and have its gradient note the same."""
        self.noted.append(torch.backends.cuda.matmul.allow_tf32)
        loss = self.weight * batch
        loss.register_hook(lambda _: self.noted.append(torch.backends.cuda.matmul.allow_tf32))
        return loss


def test_a_gpu_multiplies_in_tf32_while_it_trains_and_not_afterwards() -> None:
    noted: list[bool] = []
    loss_of = Multiplies(noted)
    schedule = Schedule(
        steps=2,
        learning_rate=0.1,
        warmup_steps=1,
        weight_decay=0.0,
        clip_norm=1.0,
        log_every_steps=1,
        tokens_per_step=1,
        flops_per_step=1.0,
    )
    between: list[bool] = []

    loop = TrainingLoop(
        parameters=[loss_of.weight],
        stream=lambda _: [(1.0, torch.ones(()))],
        autocast=precision.autocast("fp32"),
    )
    for _ in loop.run(Plan(loss_of, schedule)):
        between.append(torch.backends.cuda.matmul.allow_tf32)
    assert noted == [True] * 4  # two steps, forwards and backwards
    assert between == [False, False]


@pytest.mark.parametrize(("has_units", "expected"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_trains_in_bfloat16_without_a_probe_if_it_has_units_for_it(
    monkeypatch: pytest.MonkeyPatch, has_units: bool, expected: str
) -> None:
    monkeypatch.setattr(precision, "device", lambda: torch.device("cuda"))
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: has_units or including_emulation)
    found, reason = precision.choose_precision("auto", lambda: pytest.fail("probed"), [])
    assert found == expected
    assert "units for bfloat16" in reason


@pytest.mark.parametrize(
    ("device", "flops", "error", "expected"),
    [("cpu", 1e20, None, False), ("cuda", 1e20, None, True), ("cuda", 1e15, None, False), ("cuda", 1e20, "gcc", False)],
)
def test_layers_are_compiled_where_it_pays_and_there_is_a_compiler(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    device: str,
    flops: float,
    error: str | None,
    expected: bool,
) -> None:
    found: Callable[[torch.device], str | None] = lambda _: error  # noqa: E731
    monkeypatch.setattr(precision, "device", lambda: torch.device(device))
    monkeypatch.setattr(precision, "compiler_error", found)
    assert precision.compiles(flops) is expected
    assert ("not compiled" in capsys.readouterr().err) is (error is not None)


@pytest.mark.integration
def test_a_missing_compiler_is_said_and_no_error(tmp_path: Path) -> None:
    """On a CPU it is the C++ compiler, on a GPU Triton or its C compiler."""
    asks = "import torch; from lingraft.model.compiled import compiler_error as e; print(e(torch.device('cpu')))"
    own = {"PATH": str(tmp_path), "CXX": "missing-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", asks], env=os.environ | own, capture_output=True, text=True, check=True, timeout=300
    )
    assert "missing-compiler" in ran.stdout or "InvalidCxxCompiler" in ran.stdout, ran.stdout
