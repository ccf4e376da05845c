"""A lane of many stages that is killed goes on with the stage that it was at, and within it."""

import signal
from pathlib import Path

import pytest

from tests.interrupted.commands import start
from tests.interrupted.project import Project


def kept(out: Path) -> int:
    steps = (out / "embeddings.training").glob("step-*")
    return max((int(place.name.removeprefix("step-")) for place in steps), default=0)


@pytest.mark.integration
def test_adding_a_language_goes_on_within_its_adaptation(project: Project, tmp_path: Path) -> None:
    text = Path(project.shop.recipe.text.path) / "de.jsonl"  # type: ignore[union-attr]
    inputs = {"primary": project.folder / "pretrain", "mini": project.folder / "mini", "recipe": project.recipe}
    words = [word for name, path in inputs.items() for word in (f"--{name}", str(path))]

    def arguments(out: Path) -> list[str]:
        return ["add-language", *words, "--text", str(text), "--lang", "de", "--out", str(out)]

    whole, out = tmp_path / "whole", tmp_path / "out"
    one = start(arguments(whole), tmp_path / "whole.log")
    assert one.ends() == 0, one.said
    for aim in (10, 40):
        command = start(arguments(out), tmp_path / "out.log")
        assert command.signalled_when(signal.SIGKILL, lambda: kept(out) >= aim) == -signal.SIGKILL, command.said  # noqa: B023
    reached = kept(out)
    again = start(arguments(out), tmp_path / "out.log")
    assert again.ends() == 0, again.said
    assert f"going on after step {reached} of 80" in again.said
    files = {path.relative_to(whole) for path in whole.rglob("*.safetensors")}
    assert len(files) > 1
    assert {path.relative_to(out) for path in out.rglob("*.safetensors")} == files
    assert all((out / path).read_bytes() == (whole / path).read_bytes() for path in files)
    assert [*out.rglob("*.training")] == []
