"""Steps of pipelines: functions of a launchable and a parent tracking run.

A KFP component builds a launchable and passes it to `runner.run`, so that all logic is tested as plain Python. A step
returns the numbers to show beside it. Modules that import PyTorch are imported inside functions, because half of the
steps only move data or call the registry.
"""
