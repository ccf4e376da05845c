"""The page of the check, from whatever records there are."""

import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import ENDED, FAILED, Given, Part
from benchmarks.gpu.training import FAMILIES, PAPER_TOKENS, UNCOMPILED, hours
from benchmarks.pages import RECORD_SUFFIX, read_record, write_page
from benchmarks.speed.cells import Cell
from benchmarks.speed.settings import Settings
from lingraft.errors import LingraftError
from lingraft.tables import markdown_table

_TERA, _GIB = 1e12, 2**30
_INTRODUCTION = """`python -m benchmarks.gpu --minutes 25 --out DIR --page docs/benchmarks/gpu.md --text FOLDER`, \
or `make gpu-check`, measures in order of worth, each part in a process of its own with a time limit; the same command \
again goes on. `--pack DIR --data DATA` writes a folder under 60 MB for a machine on which nothing can be installed: \
sources, wheels, text as blocks, and `run.sh`.

Of lingraft's dependencies, torch, transformers, accelerate, tokenizers, safetensors, sentencepiece and numpy (with \
filelock, fsspec, tqdm and typing-extensions, which they need) must be there. The pack brings anyascii, babel and \
pydantic, and prometheus-client and onnx-ir for serving; pydantic-core, onnx and ml_dtypes beside them are compiled, \
for Python 3.12 on x86-64. Training and the comparison do without typer, kfp, mlflow, kserve, optuna, datasets, \
matplotlib, SciPy (which aligned rows and static vectors need) and zstandard (which .zst text needs)."""


_PARTLY = "comparison", "speed"
"""Stages whose parts say what they have found before they were stopped."""
Found = dict[str, dict[str, Any]]
"""Records of a stage's parts, or what they found, by the part's name."""


class OtherDeviceError(LingraftError):
    """A page of a GPU would be replaced by one of a CPU."""


def write(place: Path, parts: Sequence[Part], given: Given) -> None:
    """Write the page, and all records that it is made from beside it.

    Args:
        place: path of the page, which ends in `.md`.
        parts: all parts of the check, with a record or without one.
        given: settings of the run.

    Raises:
        OtherDeviceError: there is a page of a GPU, and none of these records is of one.
    """
    records = [{"stage": part.stage, "part": part.name, **given.record(part.stage, part.name)} for part in parts]
    require_replaceable(place, _kinds(records))
    write_page(place.with_suffix(""), records, page(records))


def require_replaceable(place: Path, kinds: AbstractSet[str]) -> None:
    """Refuse to replace a page of a GPU by one of other devices, such as "cpu".

    Raises:
        OtherDeviceError: that is what would be done.
    """
    before = place.with_suffix(RECORD_SUFFIX)
    if before.exists() and _kinds(read_record(before)) == {"cuda"} != kinds:
        raise OtherDeviceError(f"{place} tells of a GPU, and these records are of none. Give another --page.")


def _kinds(records: Sequence[dict[str, Any]]) -> set[str]:
    return {record["machine"]["kind"] for record in records if record.get("machine")}


def page(records: Sequence[dict[str, Any]]) -> str:
    """Return the page in Markdown, from the records of all parts in their order."""
    said = ["# On a GPU", _status(records), _INTRODUCTION]
    stages: dict[str, Found] = {}
    for record in records:
        stages.setdefault(record["stage"], {})[record["part"]] = record
    for stage, title, section in _SECTIONS:
        ended = {
            name: record["found"]
            for name, record in stages.get(stage, {}).items()
            if record.get("state") == ENDED or (stage in _PARTLY and record.get("found"))
        }
        if ended:
            said.append(f"## {title}\n\n{section(ended)}")
    if any("state" in record for record in records):
        said.append("## Parts\n\n" + _parts(records))
    return "\n\n".join(said) + "\n"


def _status(every: Sequence[dict[str, Any]]) -> str:
    machines = dict.fromkeys(
        ", ".join(f"{name} {value}" if name not in ("device", "kind") else value for name, value in each.items())
        for record in every
        if (each := record.get("machine"))
    )
    commits = dict.fromkeys(str(record["commit"]) for record in every if record.get("commit"))
    if _kinds(every) == {"cuda"}:
        dates = sorted({record["date"] for record in every if "date" in record})
        return f"Measured from {dates[0]} to {dates[-1]} on {'; '.join(machines)}; code {', '.join(commits)}."
    nothing = "**Nothing of this was measured on a GPU.** The command is ready for one"
    if not machines:
        return f"{nothing}; it was run on a CPU only, at tiny size, by its tests."
    return f"{nothing}. What follows was measured on {'; '.join(machines)}, and says nothing about a GPU."


def _environment(parts: Found) -> str:
    (found,) = parts.values()
    rows = [[name, str(found[name])] for name in ("device", "driver", "cuda", "cudnn", "python")]
    rows += [["missing packages", ", ".join(found["missing"]) or "none"]]
    for name, rates in found["flop_s"].items():
        best = max(rates, key=rates.__getitem__)
        rows.append([f"products in {name}", f"{rates[best] / _TERA:,.1f} TFLOP/s ({best})"])
    rows.append(["copies, read and written", f"{found['copied_bytes_s'] / _TERA:.2f} TB/s"])
    rows.append(["start of a kernel by the host", f"{1e6 * found['launch_s']:.1f} µs"])
    return markdown_table(["", ""], rows, left=2)


def _exactness(parts: Found) -> str:
    found = [finding for each in parts.values() for finding in each["findings"]]
    broken = sum(not finding["holds"] for finding in found)
    by_name: dict[str, Found] = {}
    for one in found:
        family, _, name = one["name"].rpartition(": ")
        by_name.setdefault(name, {})[family or FAMILIES[0]] = one
    rows = [
        [
            name,
            *(_difference(each[family]) if family in each else "" for family in FAMILIES),
            " / ".join(dict.fromkeys(f"{one['bound']:.2g}" for one in each.values())),
        ]
        for name, each in by_name.items()
    ]
    return (
        f"{broken} of {len(found)} differences from the CPU exceed their bounds. They are relative to the largest "
        "value on the CPU; 0 is equal bits.\n\n" + markdown_table(["", *FAMILIES, "bound"], rows)
    )


def _difference(finding: dict[str, Any]) -> str:
    return f"{finding['difference']:.2g}" if finding["holds"] else f"**{finding['difference']:.2g}**"


def _speed(parts: Found) -> str:
    rows, plain = [], []
    for name, found in parts.items():
        if "settings" not in found:
            plain += [_alone(each, how="without torch.compile, " * (name == UNCOMPILED)) for each in found["cells"]]
            continue
        for each in found["cells"]:
            cell = Cell.of(each["cell"])
            if "error" in each:
                plain.append(f"{cell.name} failed: {each['error'].strip().splitlines()[-1]}")
                continue
            sides = [each[side] for side in ("lingraft", "trainer")]
            rates = [f"{cell.shape.tokens_per_step / side['step_s']:,.0f}" for side in sides]
            peaks = [f"{side['peak_bytes'] / _GIB:.2f}" for side in sides]
            share = each["flops"] / sides[0]["step_s"] / each["peak_flop_s"]
            least_s = each["least_s"]
            rows.append(
                [
                    cell.shape.name,
                    str(cell.training),
                    *rates,
                    f"{each['ratio']:.2f} ({min(each['ratios']):.2f} to {max(each['ratios']):.2f})",
                    f"{share:.1%}",
                    f"{least_s / sides[0]['step_s']:.1%}" if least_s else "not known",
                    *peaks,
                    str(Settings(**found["settings"])),
                ]
            )
    head = [
        "shape",
        "training",
        "lingraft",
        "Trainer",
        "ratio",
        "MFU",
        "of the limit",
        "GiB",
        "Trainer's",
        "settings of Trainer",
    ]
    return (
        "Tokens a second in bf16, without dropout, both sides in turns: medians of rounds, and the ratio's median and "
        "range over them, which tells how steady the machine was. Trainer adapts over all layers where lingraft does "
        "over 4; it has the fastest settings of those that were tried with its family. MFU is FLOPs by the paper's "
        "formulas over a large product measured between the rounds. The limit is products at the best rate of one and "
        "the optimizer's bytes at that of a copy ([decision 23](../decisions/0023-gpu-path.md)). Memory is the peak "
        "that was allocated.\n\n" + "\n\n".join([markdown_table(head, rows, left=2), *plain])
    )


def _alone(found: dict[str, Any], how: str) -> str:
    cell = Cell.of(found["cell"])
    return (
        f"lingraft alone, {how}{cell.shape.blocks} blocks at a time, {cell.name}: "
        f"{cell.shape.tokens_per_step / found['step_s']:,.0f} tokens a second, "
        f"{found['flops'] / found['step_s'] / _TERA:,.0f} TFLOP/s, {found['peak_bytes'] / _GIB:.2f} GiB."
    )


def _profile(parts: Found) -> str:
    by_training: dict[str, Found] = {}
    for found in parts.values():
        cell = Cell.of(found["cell"])
        by_training.setdefault(str(cell.training), {})[cell.shape.name] = found
    return "\n\n".join(_kernels(training, each) for training, each in by_training.items())


def _kernels(training: str, by_shape: Found) -> str:
    said = [
        f"{shape}: {found['step_ms']:.2f} ms a step ({found['profiled_ms']:.2f} while profiled), of which kernels take "
        f"{found['kernels_ms']:.2f}; for the rest the GPU waits for the host."
        for shape, found in by_shape.items()
    ]
    head = [word for shape in by_shape for word in (shape, "ms", "calls")]
    rows = [
        [word for one in each if one for word in (f"`{_short(one['name'])}`", f"{one['ms']:.2f}", f"{one['calls']:g}")]
        for each in zip_longest(*(found["kernels"] for found in by_shape.values()))
    ]
    return f"### {training.capitalize()}\n\n{' '.join(said)}\n\n{markdown_table(head, rows)}"


def _hours(speed: Found) -> str:
    found = hours(speed)
    rows = [[shape, training, f"{h:,.1f}"] for shape, each in found.items() for training, h in each.items()]
    return (
        f"Hours on this device for the paper's {PAPER_TOKENS / 1e9:.1f} G tokens (125,000 updates of 2,048 x 512) "
        "at the rates above. Initialisation changes how many of them are needed, not the rate: at small scale "
        "`fitted` rows were faster from the start than `overlap` rows "
        "([decision 7](../decisions/0007-initialisation.md)); how much of a long run it saves is not known.\n\n"
        + markdown_table(["shape", "training", "hours"], rows, left=2)
    )


def _serving(parts: Found) -> str:
    (found,) = parts.values()
    if "missing" in found:
        return f"Not measured: {found['missing']}."
    sides = ("mixed", "single", "separate")
    rows = [
        [clients, *(f"{each[side]['texts_per_s']:,.0f} ({each[side]['p50_ms']:.1f})" for side in sides)]
        for clients, each in sorted(found["streams"]["loads"].items(), key=lambda pair: int(pair[0]))
    ]
    said = (
        f"{found['provider']}; {found['plan']}. Texts a second and, in parentheses, median milliseconds, by clients "
        "that wait for answers. Separate sessions have fp32 bodies.\n\n"
        + markdown_table(["clients", "mixed languages", "one language", "separate sessions"], rows, left=0)
    )
    if "pipelines" in found:
        rates = found["pipelines"]["texts_per_s"]
        table = markdown_table(["side", "texts/s"], [[name, f"{rate:,.0f}"] for name, rate in rates.items()])
        said += f"\n\nFrom text to labels, the Hugging Face pipeline at its best batch size:\n\n{table}"
    return said


def _comparison(parts: Found) -> str:
    (found,) = parts.values()
    if "missing" in found:
        return f"Not run: {found['missing']}."
    said = f"{found['done']} of {found['jobs']} jobs of recipes/medium.toml are done."
    return said + ("\n\n" + re.sub(r"^#", "##", found["tables"], flags=re.MULTILINE) if "tables" in found else "")


def _parts(records: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            record["stage"],
            record["part"],
            record.get("state", "not run"),
            f"{record.get('seconds', 0):.0f}",
            _why(record),
        ]
        for record in records
        if record.get("state") != ENDED
    ]
    if not rows:
        return "All parts have ended."
    return "What has not ended:\n\n" + markdown_table(["stage", "part", "state", "s", "why"], rows, left=3)


def _why(record: dict[str, Any]) -> str:
    lines: Iterable[str] = record.get("log", "").strip().splitlines()[-1:] if record.get("state") == FAILED else ()
    return "; ".join([record.get("why", ""), *lines]).replace("|", "/")[:200]


def _short(name: str) -> str:
    return name[:56].replace("|", "/").replace("`", "'")


_SECTIONS: tuple[tuple[str, str, Callable[[Found], str]], ...] = (
    ("environment", "Machine", _environment),
    ("exactness", "Exactness", _exactness),
    ("speed", "Speed", _speed),
    ("speed", "A language at the paper's scale", _hours),
    ("profile", "Where a step's time goes", _profile),
    ("serving", "Serving", _serving),
    ("comparison", "The comparison of systems", _comparison),
)
"""Stage, title and text of each section."""
