"""Make the claim's folders, so that every step may write there, whatever the root of a new volume is like.

The kubelet gives a volume to the fsGroup of a pod that mounts it. KFP's own pods have none (kubeflow/pipelines#3866),
so this one has to be the first that mounts the claim. What it makes belongs to the user and group that steps run as.
"""

import pathlib
import sys
import tempfile

FOLDERS = ("results", "lingraft", "huggingface")

root = pathlib.Path(sys.argv[1])
try:
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / name) as file:
            file.write(b"x" * 4096)
except OSError as error:
    sys.exit(f"{root} cannot be written: {error}. Look at its owner; its driver must support fsGroup.")
print(f"{root} can be written")
