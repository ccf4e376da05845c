"""From raw text to blocks of token ids."""
