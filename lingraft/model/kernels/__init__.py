"""Forward and backward passes written by hand, where they beat autograd's: docs/decisions/0009-training-step.md."""
