"""How large batches are where nobody says it."""

import pytest

from lingraft.bundle.runtime import CPU, CUDA
from lingraft.ranks import available_cores
from lingraft.serving import model
from lingraft.serving.settings import ServingSettings


@pytest.mark.parametrize(("provider", "tokens", "full"), [(CPU, 512 * available_cores(), 0.9), (CUDA, 16_384, 0.75)])
def test_a_gpu_has_larger_and_emptier_batches(
    provider: str, tokens: int, full: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "default_provider", lambda: provider)
    found = model.queue_limits(ServingSettings())
    assert (found.batch_tokens, found.min_fill) == (tokens, full)
    assert model.queue_limits(ServingSettings(batch_tokens=7)).batch_tokens == 7
