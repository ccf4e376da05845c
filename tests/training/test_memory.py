import subprocess
import sys

_FAULTS_OF_TEN_ROUNDS = """
import resource, sys, torch
from lingraft.training.memory import reuse_freed_memory
if sys.argv[1] == "reused":
    assert reuse_freed_memory()
for _ in range(10):
    torch.zeros(10_000_000).add_(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.zeros(10_000_000).add_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kind: str) -> int:
    run = subprocess.run(
        [sys.executable, "-c", _FAULTS_OF_TEN_ROUNDS, kind], capture_output=True, text=True, check=True
    )
    return int(run.stdout)


def test_freed_memory_is_used_again_without_a_page_fault() -> None:
    assert faults("reused") < faults("plain") / 10
