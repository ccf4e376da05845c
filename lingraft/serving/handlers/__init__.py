"""Handlers of requests: how texts become rows of a batch, and the outputs of the body a response; one module a kind."""
