"""The door to Hugging Face: checkpoints and tokenizers in, folders that transformers loads out."""
