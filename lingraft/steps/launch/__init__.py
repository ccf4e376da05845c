"""Launching of steps where they may be killed: in a child process here, or in a Kubernetes Job or TrainJob.

The launcher outlives the step, so that it can report how the step ended. It restarts a step that was lost through no
fault of its own, and returns any other end as a result.
"""
