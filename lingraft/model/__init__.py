"""The encoder, its heads and kernels, and the swap of embeddings."""
