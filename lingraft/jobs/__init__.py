"""Stages as jobs: dataclasses of inputs, outputs and settings, which every way to run a stage shares."""
