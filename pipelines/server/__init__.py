"""A Kubeflow Pipelines server: pipelines uploaded to it, runs started, followed and repeated there."""
