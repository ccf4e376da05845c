"""Compares stores of token blocks: `python benchmarks/block_stores.py STORE --folder FOLDER`.

STORE is own, litdata, mosaicml or datasets; each needs its package in the environment. 200,000 made-up blocks of 512
ids (205 MB) are written and then read: batches of 32 random rows, and the first batch after 1,100,000 shuffled samples.
Times are CPU seconds, which other work on the machine hardly changes. With `--order`, under `torchrun`, every rank
prints which rows its first batches after so many samples hold.
"""

import argparse
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

BLOCKS, TOKENS, BATCH = 200_000, 512, 32
SEEN = 1_100_000
BATCHES = 2_000
SHARD_BYTES = 64 << 20
TOLD_BATCHES = 4


def rows_of(first: int, count: int) -> np.ndarray:
    """Blocks (count, TOKENS), uint16, of which the first two ids tell the row."""
    blocks_NT = np.random.default_rng(first).integers(5, 50_000, (count, TOKENS), dtype=np.uint16)
    numbers = np.arange(first, first + count)
    blocks_NT[:, 0], blocks_NT[:, 1] = numbers % 65_536, numbers // 65_536
    return blocks_NT


def row_numbers(blocks_BT: Any) -> list[int]:
    """Which rows a batch holds."""
    ids = np.asarray(blocks_BT).astype(np.int64)
    return (ids[:, 0] + ids[:, 1] * 65_536).tolist()


def chunks() -> Iterator[np.ndarray]:
    """All blocks, in pieces."""
    return (rows_of(first, 10_000) for first in range(0, BLOCKS, 10_000))


def _examples() -> Iterator[dict[str, np.ndarray]]:
    return ({"tokens": block_T} for blocks_NT in chunks() for block_T in blocks_NT)


class Store(Protocol):
    """A library's way of keeping blocks."""

    package: str

    def write(self, folder: Path) -> None: ...

    def open(self, folder: Path) -> Callable[[Sequence[int]], Any]:
        """Function from row numbers to a batch, int64."""
        ...

    def shuffled(self, folder: Path, seen: int) -> Iterator[Any]:
        """This rank's batches in a shuffled order, after `seen` samples over all ranks."""
        ...


class Own:
    package = "lingraft.data.shards"

    def write(self, folder: Path) -> None:
        from lingraft.artifacts import artifact
        from lingraft.data.shards import BlockWriter

        with artifact.create(folder, artifact.Kind.BLOCKS) as draft:
            writer = BlockWriter(draft, "train", TOKENS, 50_000, SHARD_BYTES)
            for blocks_NT in chunks():
                writer.add(blocks_NT)
            writer.close()
            draft.facts = {"details": {"window_shards": 4, "vocabulary": 50_000}}

    def _split(self, folder: Path) -> Any:
        from lingraft.artifacts.artifact import Artifact, Kind
        from lingraft.data.blocks import open_split

        return open_split(Artifact.open(folder, Kind.BLOCKS), "train")

    def open(self, folder: Path) -> Callable[[Sequence[int]], Any]:
        import torch

        blocks = self._split(folder)
        return lambda rows: blocks.take(torch.tensor(rows))

    def shuffled(self, folder: Path, seen: int) -> Iterator[Any]:
        from lingraft.data.shuffling import ShuffledIndices

        blocks = self._split(folder)
        order = ShuffledIndices(len(blocks), 1, blocks.window)
        rank, ranks = place()
        own = BATCH // ranks
        while True:
            yield blocks.take(order.rows(seen + rank * own, own))
            seen += BATCH


class LitData:
    package = "litdata"

    def write(self, folder: Path) -> None:
        import torch
        from litdata.streaming.cache import Cache
        from litdata.streaming.item_loader import TokensLoader

        cache = Cache(str(folder), chunk_bytes=SHARD_BYTES, item_loader=TokensLoader(TOKENS))
        for index, block_T in enumerate(block_T for blocks_NT in chunks() for block_T in blocks_NT):
            cache[index] = torch.from_numpy(block_T)
        cache.done()
        cache.merge()

    def _data(self, folder: Path, shuffle: bool) -> Any:
        from litdata import StreamingDataset
        from litdata.streaming.item_loader import TokensLoader

        return StreamingDataset(str(folder), item_loader=TokensLoader(TOKENS), shuffle=shuffle, seed=1, drop_last=True)

    def open(self, folder: Path) -> Callable[[Sequence[int]], Any]:
        import torch

        data = self._data(folder, shuffle=False)
        return lambda rows: torch.stack([data[row] for row in rows]).long()

    def shuffled(self, folder: Path, seen: int) -> Iterator[Any]:
        from litdata import StreamingDataLoader

        _, ranks = place()
        loader = StreamingDataLoader(self._data(folder, shuffle=True), batch_size=BATCH // ranks, num_workers=0)
        epoch, inside = divmod(seen, BLOCKS)
        state = loader.state_dict()
        if seen:
            state["dataset"] = loader.dataset.state_dict(inside // ranks, 1, BATCH // ranks)
            state["current_epoch"] = state["dataset"]["current_epoch"] = epoch + 1
            state["num_samples_yielded"] = inside // ranks
            loader.load_state_dict(state)
        return iter(loader)


class Mosaic:
    package = "streaming"

    def write(self, folder: Path) -> None:
        from streaming import MDSWriter

        columns = {"tokens": f"ndarray:uint16:{TOKENS}"}
        with MDSWriter(out=str(folder), columns=columns, size_limit=SHARD_BYTES) as writer:
            for blocks_NT in chunks():
                for block_T in blocks_NT:
                    writer.write({"tokens": block_T})

    def _data(self, folder: Path, shuffle: bool) -> Any:
        from streaming import StreamingDataset

        _, ranks = place()
        return StreamingDataset(
            local=str(folder), shuffle=shuffle, shuffle_seed=1, batch_size=BATCH // ranks, num_canonical_nodes=1
        )

    def open(self, folder: Path) -> Callable[[Sequence[int]], Any]:
        import torch

        data = self._data(folder, shuffle=False)
        return lambda rows: torch.from_numpy(np.stack([data[row]["tokens"] for row in rows]).astype(np.int64))

    def shuffled(self, folder: Path, seen: int) -> Iterator[Any]:
        from torch.utils.data import DataLoader

        data = self._data(folder, shuffle=True)
        epoch, inside = divmod(seen, BLOCKS)
        if seen:
            data.load_state_dict(data.state_dict(inside, from_beginning=True) | {"epoch": epoch})
        _, ranks = place()
        loader = DataLoader(data, batch_size=BATCH // ranks)
        return (batch["tokens"] for batch in loader)


class Arrow:
    package = "datasets"

    def write(self, folder: Path) -> None:
        from datasets import Dataset, Features, List, Value

        features = Features({"tokens": List(Value("uint16"), length=TOKENS)})
        made = Dataset.from_generator(_examples, features=features, cache_dir=f"{folder}-cache")
        made.save_to_disk(str(folder), max_shard_size=SHARD_BYTES)

    def _data(self, folder: Path) -> Any:
        from datasets import load_from_disk

        return load_from_disk(str(folder)).with_format("numpy")

    def open(self, folder: Path) -> Callable[[Sequence[int]], Any]:
        import torch

        data = self._data(folder)
        return lambda rows: torch.from_numpy(data[rows]["tokens"].astype(np.int64))

    def shuffled(self, folder: Path, seen: int) -> Iterator[Any]:
        from datasets.distributed import split_dataset_by_node

        rank, ranks = place()
        data = self._data(folder).to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=10_000)
        epoch, inside = divmod(seen, BLOCKS)
        data.set_epoch(epoch)
        own = split_dataset_by_node(data, rank, ranks).skip(inside // ranks)
        return (batch["tokens"] for batch in own.iter(batch_size=BATCH // ranks))


STORES: dict[str, type[Store]] = {"own": Own, "litdata": LitData, "mosaicml": Mosaic, "datasets": Arrow}


@functools.cache
def place() -> tuple[int, int]:
    """Rank and number of ranks."""
    import torch.distributed as dist

    if not dist.is_torchelastic_launched():
        return 0, 1
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def import_s(package: str) -> float:
    """Median time that an interpreter which has torch already takes to import it."""
    code = f"import time, torch; begin = time.process_time(); import {package}; print(time.process_time() - begin)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    return statistics.median(float(run.stdout.split()[-1]) for run in runs)


def batches_a_second(take: Callable[[Sequence[int]], Any]) -> float:
    """Median over five rounds of random rows."""
    random, rates = np.random.default_rng(1), []
    for _ in range(5):
        asked = [random.integers(0, BLOCKS, BATCH).tolist() for _ in range(BATCHES // 5)]
        begin = time.process_time()
        found = [row_numbers(take(rows)) == rows for rows in asked]
        rates.append(len(asked) / (time.process_time() - begin))
        if not all(found):
            raise RuntimeError("the rows taken are not those asked for")
    return statistics.median(rates)


def measure(store: Store, folder: Path) -> dict[str, Any]:
    """All of one store."""
    if not folder.exists():
        store.write(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    rate = batches_a_second(store.open(folder))
    begin = time.process_time()
    next(store.shuffled(folder, 0))
    first_s = time.process_time() - begin
    begin = time.process_time()
    next(store.shuffled(folder, SEEN))
    resume_s = time.process_time() - begin
    return {
        "import_after_torch_cpu_s": round(import_s(store.package), 2),
        "bytes_per_id": round(size / BLOCKS / TOKENS, 3),
        "batches_a_cpu_second": round(rate),
        "first_batch_cpu_s": round(first_s, 3),
        "batch_after_1.1e6_samples_cpu_s": round(resume_s, 3),
    }


def main() -> None:
    """Measure one store, or tell its order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--folder", type=Path, required=True, help="written if it is not there")
    parser.add_argument("--order", type=int, help="tell the rows after so many samples")
    arguments = parser.parse_args()
    store = STORES[arguments.store]()
    if arguments.order is None:
        print(json.dumps({"store": arguments.store} | measure(store, arguments.folder)))
        return
    batches = store.shuffled(arguments.folder, arguments.order)
    for number in range(TOLD_BATCHES):
        print(f"batch {number}, rank {place()[0]}: {sorted(row_numbers(next(batches)))}")


if __name__ == "__main__":
    main()
