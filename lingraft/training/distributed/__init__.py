"""Training on several processes and machines."""
