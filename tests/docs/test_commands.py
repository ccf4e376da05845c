"""Every command of the README and of the guides runs: stages and endpoint for real, on text that the tests make."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from pipelines.__main__ import app
from tests import made_up
from tests.fixtures import forked, once
from tests.huggingface.checkpoints import make_checkpoint
from tests.pipelines.kfp_server import KfpServer

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/get-started.md",
    "docs/guides/kubeflow.md",
    "docs/guides/add-a-language.md",
    "docs/guides/import-a-model.md",
    "docs/guides/choose-a-depth.md",
    "docs/guides/search-an-index.md",
)
"""Pages whose commands run here, in the order in which their stages need one another."""
RUN_ELSEWHERE = {
    "docs/guides/alignment.md": "tests/docs/test_guides.py",
    "docs/guides/registry.md": "tests/docs/test_guides.py",
    "docs/guides/serving.md": "tests/serving/test_rpc.py",
    "docs/guides/several-gpus.md": "tests/training/distributed/test_elastic.py",
    "docs/operations/README.md": "tests/docs/test_operations.py",
    "docs/operations/install.md": "tests/manifests/readme_secrets.py",
    "docs/operations/platform.md": "tests/docs/test_operations.py",
}
"""Other pages with commands, and the file that runs them."""
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
BIN = Path(sys.executable).parent
_BRIEF = {"steps": "8", "warmup_steps": "1", "epochs": "1", "seeds": "[1]", "vocabulary": "120"}
_GATE = "\n[gate]\nmargin = -0.5\ntolerance = 0.9\n"
"""So little training teaches nothing; what the gate refuses is tried elsewhere."""
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ANY_BLOCK = re.compile(r"^```(sh|bash|console)?\n(lingraft|python|torchrun|kubectl|make|curl|apt|pip)", re.MULTILINE)
_MAKE, _STAGE, _KUSTOMIZE = ("make ", "lingraft ", "kubectl apply -k ")
_SERVE = "lingraft serve "
_FROM_RESULTS = "lingraft add-language --results .demo "
"""Begins the command that needs what a demo has left."""
_COMPILE, _ASK = "python -m pipelines compile ", "curl "
_SUBMIT, _DEMO = "python -m pipelines submit ", "python -m pipelines demo "


def _commands() -> list[str]:
    commands = [
        command
        for text in TEXTS.values()
        for block in _BLOCK.findall(text)
        for command in ([block.strip()] if block.startswith(_ASK) else block.strip().splitlines())
    ]
    return [*dict.fromkeys(commands)]


def _starting(prefix: str) -> list[str]:
    return [command for command in _commands() if command.startswith(prefix)]


def _run(command: str, folder: Path) -> str:
    path = f"PATH={BIN}:$PATH OMP_NUM_THREADS=1"
    done = subprocess.run(
        ["bash", "-c", f"{path}\nexport PATH OMP_NUM_THREADS\n{command}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _of_pipelines(command: str) -> str:
    """What `python -m pipelines` prints; it is called in this process."""
    _, _, _, *words = command.split()
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_command_is_one_that_a_test_runs() -> None:
    known = (_MAKE, _STAGE, _KUSTOMIZE, _COMPILE, _SUBMIT, _DEMO, _ASK)
    assert [command for command in _commands() if not command.startswith(known)] == []


def test_every_page_with_commands_has_a_test_that_runs_them() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    with_commands = {
        page.relative_to(ROOT).as_posix() for page in pages if _ANY_BLOCK.search(page.read_text(encoding="utf-8"))
    }
    assert with_commands - {path for path in with_commands if "/benchmarks/" in path} == {
        *PAGES,
        *RUN_ELSEWHERE,
    }
    assert all(Path(page).name in (ROOT / test).read_text(encoding="utf-8") for page, test in RUN_ELSEWHERE.items())


def test_make_has_the_targets() -> None:
    named = {*_starting(_MAKE), *re.findall(r"`(make [a-z-]+)`", "\n".join(TEXTS.values()))}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {command.split()[1] for command in named} <= {*targets}


@pytest.mark.parametrize("command", _starting(_KUSTOMIZE))
def test_the_manifests_build(command: str) -> None:
    assert "kind: InferenceService" in _run(command.replace("kubectl apply -k", "kubectl kustomize"), ROOT)


@pytest.mark.parametrize("command", _starting(_COMPILE))
def test_the_pipelines_compile(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    _of_pipelines(command.replace("--out compiled", f"--out {tmp_path}"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["language.yaml", "source.yaml"]


@pytest.mark.parametrize("command", _starting(_SUBMIT))
def test_a_pipeline_is_submitted(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = KfpServer()
    server.story = [{"adapt": "SUCCEEDED"}]
    monkeypatch.chdir(ROOT)
    with server.serving() as address:
        link = _of_pipelines(command.replace("http://localhost:8888", address))
    [run_id] = server.runs
    assert link == f"{address}/#/runs/details/{run_id}\n"


def _stage(command: str, folder: Path) -> None:
    with contextlib.chdir(folder), forked.start_lingraft(command.split()[1:], folder / "log") as child:
        assert child.ends() == 0, f"{command}\n{child.said}"


@pytest.fixture(scope="module")
def worked() -> Path:
    """A folder in which all stages have run, in the order of the pages, once for all workers."""
    return once.folder("commands", _work, "\n".join(_starting(_STAGE)))


def _work(folder: Path) -> None:
    made_up.write(folder / "text", ("en", "de", "tr"))
    shutil.copy(ROOT / "tests" / "tiny.toml", folder / "recipe.toml")
    pages = [made_up.documents(language, 3000) for language in ("en", "de")]
    (folder / "de.txt").write_text("\n\n".join(page["text"] for page in pages[1]), encoding="utf-8")
    lines = ("\n".join(page["text"] for page in each[:60]).split("\n") for each in pages)
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(*lines, strict=True))
    (folder / "en-de.tsv").write_text(pairs, encoding="utf-8")
    make_checkpoint(folder / "my-encoder", "roberta")
    for command in _starting(_STAGE):
        if not command.startswith((_SERVE, _FROM_RESULTS)):
            _stage(command, folder)


@pytest.mark.integration
def test_the_stages_lead_to_a_report(worked: Path) -> None:
    assert (worked / "work" / "report" / "report.html").stat().st_size > 10_000


@pytest.mark.integration
def test_a_recipe_for_ones_own_text_leads_to_answers(worked: Path, tmp_path: Path) -> None:
    [command] = _starting(_DEMO)
    recipe = (worked / "my-recipe.toml").read_text(encoding="utf-8")
    shorter = re.sub(
        rf"^({'|'.join(_BRIEF)}) = .+?(?=  #)",
        lambda found: f"{found[1]} = {_BRIEF[found[1]]}",
        recipe,
        flags=re.MULTILINE,
    )
    assert 'targets = ["de", "tr"]' in shorter
    shorter = re.sub(
        r"^tr = .*\n", "", shorter.replace('targets = ["de", "tr"]', 'targets = ["de"]'), flags=re.MULTILINE
    )
    (tmp_path / "my-recipe.toml").write_text(shorter + _GATE, encoding="utf-8")
    said = _run(f"export PYTHONPATH={ROOT}\n{command}", tmp_path)
    for language in ("en", "de"):
        assert re.search(rf"^\w+ \({language}\): .+\n    -> ({'|'.join(made_up.TOPICS)}) ", said, re.MULTILINE), said
    [add] = _starting(_FROM_RESULTS)
    made_up.write(tmp_path / "text", ("sw",))
    said = _run(f"export PYTHONPATH={ROOT}\n{add.replace('.demo', 'my-results')}", tmp_path)
    assert "topic: accuracy, " in said
    register = said.splitlines()[-1].partition(": ")[2]
    registered = _run(f"export PYTHONPATH={ROOT}\n{register} --recipe my-recipe.toml", tmp_path)
    assert re.search(r"-bundle-\S+ is champion", registered), registered


@pytest.mark.integration
def test_an_imported_checkpoint_is_a_primary(worked: Path) -> None:
    assert (
        Artifact.load(worked / "work" / "my-encoder", Kind.PRIMARY).manifest.record["origin"]["model_type"] == "roberta"
    )


@pytest.mark.integration
def test_a_language_is_handed_on_with_its_card(worked: Path) -> None:
    card = (worked / "work" / "hf-de" / "README.md").read_text(encoding="utf-8")
    assert "MINIJOINT" in card


@pytest.fixture
def served(worked: Path) -> Iterator[str]:
    """Address of the endpoint."""
    [serve] = _starting(_SERVE)
    # Another test's server may have gRPC's usual port.
    with _running(f"{serve} --grpc-port 0", worked, "/v2/health/ready") as address:
        yield address


@contextlib.contextmanager
def _running(command: str, folder: Path, page: str) -> Iterator[str]:
    """Address of a command that serves, as soon as it has a page."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    name, *words = [*command.split(), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen([str(BIN / name), *words], cwd=folder) as server:
        try:
            _wait(f"http://127.0.0.1:{port}{page}", server)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


def _wait(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(address):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(f"{address} was not ready in time")


@pytest.mark.integration
def test_the_endpoint_answers_the_curl_command(worked: Path, served: str) -> None:
    [command] = _starting(_ASK)
    answer = _run(command.replace("localhost:8080", served).replace("/help-topic/", "/topic/"), worked)
    assert any(topic in answer for topic in made_up.TOPICS), answer
