"""Reading, cleaning, tokenizing and packing of text, from raw files to blocks of token ids."""
