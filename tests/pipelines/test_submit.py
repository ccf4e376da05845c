"""Pipelines on a Kubeflow Pipelines server: uploaded, started, scheduled and followed through its REST API."""

import contextlib
import copy
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import kfp_server_api as kfp
import pytest
import yaml
from typer.testing import CliRunner

from lingraft.config.recipe import Recipe
from lingraft.errors import LingraftError, RecipeError
from pipelines.__main__ import app
from pipelines.server import commands, connection, follow
from pipelines.server.connection import Connection, ServerError
from tests.pipelines.compiled import stand_in
from tests.pipelines.kfp_server import TOKEN, KfpServer

TINY = Path(__file__).parents[1] / "tiny.toml"
PINNED = "registry.example/train@sha256:" + "0" * 64


@pytest.fixture
def server() -> KfpServer:
    return KfpServer()


@pytest.fixture
def host(server: KfpServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(follow, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(connection, "_PAUSE_S", 0.0)
    with server.serving() as address:
        yield address


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    tiny = TINY.read_text(encoding="utf-8")
    path.write_text(tiny.replace("[cluster]\n", f'[cluster]\nimage = "{PINNED}"\n'), encoding="utf-8")
    return path


@pytest.fixture
def _of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is submitted does not matter."""
    stand_in(monkeypatch)


of_one_step = pytest.mark.usefixtures("_of_one_step")


def test_a_pipeline_is_uploaded_started_and_followed_to_its_end(
    server: KfpServer, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.submit("source", TINY, host, ui="https://ui.example/pipeline/", given=["language=de"], image=PINNED)
    [run] = server.runs.values()
    [version] = server.versions
    settings = Recipe.load(TINY)
    assert [pipeline.name for pipeline in server.pipelines] == [f"{settings.name}-source"]
    assert run.pipeline_version_reference.pipeline_version_id == version.pipeline_version_id
    assert run.runtime_config.parameters == {"language": "de"}
    assert run.experiment_id == server.experiments[0].experiment_id
    assert server.experiments[0].display_name == settings.name
    package = next(iter(yaml.safe_load_all(server.packages[version.name])))
    assert package["pipelineInfo"]["name"] == f"{settings.name}-source"
    executors = package["deploymentSpec"]["executors"].values()
    assert {each["container"]["image"] for each in executors} == {PINNED}  # in place of the recipe's
    printed = capsys.readouterr()
    assert printed.out == f"https://ui.example/pipeline/#/runs/details/{run.run_id}\n"
    # Of the seven nodes that the workflow of one step has.
    assert re.findall(r"^\[ +\d+ s\] (.*)$", printed.err, re.MULTILINE) == ["adapt: running", "adapt: succeeded"]


@of_one_step
def test_the_same_pipeline_is_the_same_version_and_another_recipe_another_one(
    server: KfpServer, host: str, recipe: Path
) -> None:
    for _ in range(2):
        commands.submit("source", recipe, host, wait=False)
    assert (len(server.pipelines), len(server.versions), len(server.runs)) == (1, 1, 2)
    recipe.write_text(recipe.read_text().replace("steps = 60", "steps = 61", 1))
    commands.submit("source", recipe, host, wait=False)
    assert (len(server.pipelines), len(server.versions), len(server.experiments)) == (1, 2, 1)


@of_one_step
def test_what_somebody_else_makes_at_the_same_moment_is_used(server: KfpServer, host: str, recipe: Path) -> None:
    commands.submit("source", recipe, host, wait=False)
    for there in (server.pipelines, server.versions, server.experiments):
        taken = [copy.copy(each) for each in there]
        there.clear()
        server.raced = partial(there.extend, taken)
        commands.submit("source", recipe, host, wait=False)
        assert there == taken


@of_one_step
@pytest.mark.parametrize(
    ("story", "end", "error", "words"),
    [
        (
            [{"adapt": "RUNNING"}, {"adapt": "FAILED", "report": "SKIPPED"}],
            "FAILED",
            "",
            r"ended as failed. adapt: .* Logs: http://\S+/#/runs/details/",
        ),
        ([{}], "FAILED", "no such service account", "no such service account"),
        ([{"adapt": "SUCCEEDED"}], "CANCELED", "", "ended as canceled"),
    ],
    ids=["in a step", "before its first step", "cancelled"],
)
def test_a_run_that_does_not_succeed_is_an_error_with_the_reason(
    server: KfpServer, host: str, recipe: Path, story: list[dict[str, str]], end: str, error: str, words: str
) -> None:
    server.story, server.end, server.error = story, end, error
    with pytest.raises(follow.RunFailedError, match=words):
        commands.submit("source", recipe, host)


@of_one_step
def test_the_exit_code_is_the_runs_truth(server: KfpServer, host: str, recipe: Path) -> None:
    commands.submit("source", recipe, host, wait=False)
    [run_id] = server.runs
    command = ["follow", run_id, "--host", host]
    server.story, server.end = [{"adapt": "FAILED"}], "FAILED"
    done = subprocess.run([sys.executable, "-m", "pipelines", *command], capture_output=True, text=True, check=False)
    assert (done.returncode, "error: run" in done.stderr) == (1, True), done.stderr
    server.story, server.end = [{"adapt": "SUCCEEDED"}], "SUCCEEDED"
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0


@of_one_step
def test_a_server_that_fails_for_a_while_is_looked_for_again(server: KfpServer, host: str, recipe: Path) -> None:
    commands.submit("source", recipe, host, wait=False)
    [run_id] = server.runs
    server.faults["GET", f"runs/{run_id}"] = [500, 503]
    commands.follow(run_id, host)
    assert not server.faults["GET", f"runs/{run_id}"]


@of_one_step
def test_a_pipeline_with_another_name_is_not_taken_for_its_title(server: KfpServer, host: str, recipe: Path) -> None:
    title = f"{Recipe.load(recipe).name}-source"
    theirs = kfp.V2beta1Pipeline(pipeline_id="theirs", name="another", display_name=title)
    server.pipelines.append(theirs)
    commands.submit("source", recipe, host, wait=False)
    [version] = server.versions
    assert [pipeline.name for pipeline in server.pipelines] == ["another", title]
    assert version.pipeline_id == server.pipelines[1].pipeline_id


@of_one_step
def test_an_installation_for_several_users_wants_a_namespace(server: KfpServer, host: str, recipe: Path) -> None:
    server.serves_several = True
    with pytest.raises(ServerError, match="answers 400 An experiment cannot have an empty namespace"):
        commands.submit("source", recipe, host, wait=False)
    for namespace in ("ours", "theirs"):
        commands.submit("source", recipe, host, wait=False, namespace=namespace)
        commands.submit("source", recipe, host, namespace=namespace, cron="0 0 3 * * *")
    assert {one.namespace for one in server.experiments} == {"ours", "theirs"}
    assert len(server.experiments) == len(server.runs) == len(server.schedules) == 2


def test_what_is_refused_is_told_in_the_servers_words_without_a_stack_trace(server: KfpServer, host: str) -> None:
    with pytest.raises(ServerError) as refused:
        commands.follow("none", host)
    assert f"look at run none: {host} answers 404 ResourceNotFoundError: none not found. Is --host" in str(
        refused.value
    )


@of_one_step
def test_a_start_that_fails_is_not_repeated(server: KfpServer, host: str, recipe: Path) -> None:
    server.faults["POST", "runs"] = [500]
    with pytest.raises(ServerError, match="answers 500"):
        commands.submit("source", recipe, host)
    assert server.asked.count(("POST", "runs")) == 1


@of_one_step
def test_the_token_comes_from_a_file_that_may_be_renewed_or_the_environment(
    server: KfpServer, host: str, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = TOKEN
    with pytest.raises(ServerError, match=r"answers 401 .*token is not valid.* set KF_PIPELINES_TOKEN"):
        commands.submit("source", recipe, host)
    monkeypatch.setenv("KF_PIPELINES_TOKEN", TOKEN)
    commands.submit("source", recipe, host)
    token = tmp_path / "token"
    token.write_text("an old token\n")
    to = Connection(host, token_file=token)
    client, [run_id] = to.client(), server.runs
    with pytest.raises(ServerError, match="answers 401"):
        follow.follow(to, client, run_id, print)
    token.write_text(f"{TOKEN}\n")
    follow.follow(to, client, run_id, print)


@of_one_step
def test_a_schedule_takes_the_place_of_the_one_before(server: KfpServer, host: str, recipe: Path) -> None:
    commands.submit("language", recipe, host, cron="0 0 3 * * *")
    server.schedules.append(
        copy.copy(server.schedules[0])
    )  # of a command that was killed before it had taken this down
    server.schedules[1].recurring_run_id = "left"
    commands.submit("language", recipe, host, cron="0 0 4 * * *")
    [schedule] = server.schedules
    assert schedule.trigger.cron_schedule.cron == "0 0 4 * * *"
    assert (schedule.mode, schedule.no_catchup, schedule.max_concurrency) == ("ENABLE", True, "1")
    assert server.runs == {}


@of_one_step
def test_an_image_without_a_digest_is_refused_unless_it_is_wanted(server: KfpServer, host: str) -> None:
    with pytest.raises(RecipeError, match="has no digest"):
        commands.submit("source", TINY, host, wait=False)
    assert server.asked == []
    commands.submit("source", TINY, host, wait=False, unpinned=True)
    assert len(server.runs) == 1


@of_one_step
def test_parameters_are_read_as_what_they_are(server: KfpServer, host: str, recipe: Path) -> None:
    given = ["memory=4", 'node_selector={"pool": "a"}', "compare=true"]
    commands.submit("language", recipe, host, wait=False, given=given)
    [run] = server.runs.values()
    assert run.runtime_config.parameters == {"memory": "4", "node_selector": {"pool": "a"}, "compare": True}
    known = r"is not NAME=VALUE with one of \['compare', 'memory', 'node_selector', 'recipe'\]"
    for word, refused in (("compare=yes", "is not JSON"), ("depth=3", known), ("memory", known)):
        with pytest.raises(RecipeError, match=refused):
            commands.submit("language", recipe, host, wait=False, given=[word])


def test_an_unknown_pipeline_is_answered_with_those_there_are(host: str, recipe: Path) -> None:
    with pytest.raises(LingraftError, match="there are source, depth-search, language, paper"):
        commands.submit("sauce", recipe, host)


@of_one_step
def test_a_server_that_is_not_there_and_a_host_that_is_none_are_named(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_PAUSE_S", 0.0)
    with pytest.raises(ServerError, match="must begin with http"):
        Connection("somewhere").client()
    with pytest.raises(ServerError, match="there is no file"):
        Connection(certificate=tmp_path / "ca.pem").client()
    with contextlib.ExitStack() as stack:
        gone = stack.enter_context(KfpServer().serving())
    with pytest.raises(ServerError, match=r"cannot be reached: .* kubectl port-forward"):
        commands.submit("source", recipe, gone)
