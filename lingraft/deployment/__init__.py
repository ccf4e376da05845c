"""Endpoints on a cluster: KServe InferenceServices that bring their bundles from the registry."""
