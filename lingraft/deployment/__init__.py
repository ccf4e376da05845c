"""Endpoints on a cluster: KServe InferenceServices that download their bundles from the registry."""
