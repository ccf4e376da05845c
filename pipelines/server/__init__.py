"""A Kubeflow Pipelines server: pipelines uploaded to it, runs started, followed and repeated there."""

IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
"""Address of the server for the pods of its cluster."""
