"""Kinds of task: how texts become rows of a batch, and the body's outputs a response; one module for each kind."""
