"""Commands for a Kubernetes cluster: bringing an endpoint to it."""

import json
from typing import Annotated

import typer

from lingraft.errors import DeploymentError

# Commands import what they need, so that --help does not wait for PyTorch and MLflow.


def deploy(
    models: Annotated[
        list[str] | None, typer.Argument(help="Bundles: models:/NAME/VERSION or models:/NAME@champion, one a task.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the InferenceService.")] = "lingraft",
    namespace: Annotated[
        str | None, typer.Option(help="Kubernetes namespace; kubectl's current one if absent.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Image, with a tag or digest; this version's if absent.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Have pods take up new champions while they run.")] = False,
    mode: Annotated[str, typer.Option(help="Standard (a Deployment) or Knative, which canaries need.")] = "Standard",
    replicas: Annotated[int, typer.Option(help="Fewest pods.")] = 1,
    max_replicas: Annotated[int | None, typer.Option(help="Most pods; --replicas if absent.")] = None,
    concurrency: Annotated[int, typer.Option(help="Concurrent requests per pod, above which pods are added.")] = 32,
    prometheus: Annotated[
        str | None, typer.Option(help="Address of Prometheus, by whose metrics KEDA scales in mode Standard.")
    ] = None,
    cpu: Annotated[str, typer.Option(help="CPU cores of each pod.")] = "2",
    memory: Annotated[str, typer.Option(help="Memory of each pod.")] = "2Gi",
    gpus: Annotated[int, typer.Option(help="GPUs of each pod; they need an --image with the gpu extra.")] = 0,
    canary: Annotated[
        int | None, typer.Option(help="Percent of traffic for the new version; the old one keeps the rest.")
    ] = None,
    promote: Annotated[bool, typer.Option("--promote", help="Give the canary all traffic.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Give all traffic back to the version before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifest, and change nothing.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until the service is ready; 0: do not wait.")
    ] = 600.0,
) -> None:
    """Serve registered bundles on the cluster that kubectl is set to, and wait until they are ready.

    Pods download the bundles from the registry, verify them, and are ready when every language passes its self-test.
    """
    if [bool(models), promote, rollback].count(True) != 1:
        raise DeploymentError("name bundles (models:/NAME/VERSION), or give one of --promote and --rollback.")
    manifest = {}
    if models or dry_run:
        from lingraft.deployment.deployment import validate_deployment
        from lingraft.deployment.inference_service import inference_service

        settings: dict[str, object] = {
            "name": name,
            "models": models or (),
            "follow": follow,
            "mode": mode,
            "replicas": replicas,
            "max_replicas": max_replicas or replicas,
            "concurrency": concurrency,
            "prometheus": prometheus,
            "cpu": cpu,
            "memory": memory,
            "gpus": gpus,
            "canary": canary,
        }
        manifest = inference_service(validate_deployment(**settings, **({"image": image} if image else {})))
    if dry_run:
        import yaml

        plain = json.loads(json.dumps(manifest))  # or YAML would have anchors
        print(yaml.safe_dump(plain, sort_keys=False, width=120), end="")
        return
    from lingraft.deployment.rollout import Rollout
    from lingraft.steps.launch.on_cluster import connect

    api, own = connect()
    rollout = Rollout(api, namespace or own, name)
    if promote:
        rollout.promote()
    elif rollback:
        rollout.rollback()
    else:
        rollout.apply(manifest)
    if wait:
        print(f"{name} is ready: {rollout.until_ready(wait) or 'KServe tells no address'}")
