"""Text to blocks as a user of transformers makes them: datasets, a fast tokenizer, and run_mlm's `group_texts`.

    python -m benchmarks.data_peer --text FILE --tokenizer FOLDER --out FOLDER

As in run_mlm, but without columns that nothing needs: attention masks of full blocks, and masks of special tokens,
which its collator finds by itself. The peer is faster so.
"""

import argparse
from itertools import chain
from pathlib import Path

from datasets import load_dataset
from transformers import PreTrainedTokenizerFast


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--block-tokens", type=int, default=512)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    length = arguments.block_tokens
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.tokenizer)

    def tokenize(examples: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        found = tokenizer(examples["text"], return_attention_mask=False, return_token_type_ids=False)
        return {"input_ids": found["input_ids"]}

    def group_texts(examples: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        ids = list(chain(*examples["input_ids"]))
        whole = len(ids) // length * length
        return {"input_ids": [ids[start : start + length] for start in range(0, whole, length)]}

    cache = str(arguments.out.with_name(f"{arguments.out.name}-cache"))
    lines = load_dataset("text", data_files=str(arguments.text), split="train", cache_dir=cache)
    tokenized = lines.map(tokenize, batched=True, num_proc=arguments.processes, remove_columns=["text"])
    tokenized.map(group_texts, batched=True, num_proc=arguments.processes).save_to_disk(str(arguments.out))


if __name__ == "__main__":
    main()
