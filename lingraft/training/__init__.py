"""The training loop with its schedule, optimizer, batches and checkpoints."""
