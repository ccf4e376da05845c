"""The stages as pipeline steps: functions of a recipe in JSON, folders, and a parent tracking run.

A KFP component is one call of a function here, so that all logic is tested as plain Python. A function returns the
numbers to show beside the step. Modules that import PyTorch are imported inside functions, because half of the steps
only move data or call the registry.
"""
