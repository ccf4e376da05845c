"""Adding one language to a primary as one resumable call."""
