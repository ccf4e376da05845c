"""What the serving benchmark found: a page in Markdown and a plot, beside the records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.serving import aims, latency, overhead, streams
from benchmarks.serving.aims import Aim
from benchmarks.speed.table import markdown
from lingraft.files import write_json, write_text
from lingraft.paper.canvas import Drawing
from lingraft.report.canvas import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "serving"
_GIB, _MB = 2**30, 1e6
_NOT_RUN = "Not run."


class Told(NamedTuple):
    """What a page is made of."""

    command: str
    plan: str
    machine: Mapping[str, str]
    commit: str | None
    bound_ms: float
    found: dict[str, Any]
    """By part; each has the load of the machine as `load_average`, before and after."""


def write(told: Told, folder: Path) -> None:
    """Write page, records and plot."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{NAME}.json", told._asdict())
    write_text(folder / f"{NAME}.md", page(told))
    (folder / f"{NAME}.png").write_bytes(plot(told).png())


def page(told: Told) -> str:
    """The page."""
    made = aims.aims(told.found, told.bound_ms)
    parts = [
        "# Serving",
        f"`{told.command}`: {told.plan}. Random weights, since speed and memory do not depend on what they are; what number "
        "formats cost is measured on a trained model. Machine: "
        f"{', '.join(f'{name} {value}' for name, value in told.machine.items())}. Every side has as many threads as this "
        f"process may use cores. Code: {told.commit or 'outside a repository'}.",
        _verdict(made),
        _aims(made),
        f"![Memory, throughput and latency]({NAME}.png)",
    ]
    for name, (title, section) in _SECTIONS.items():
        parts += [f"## {title}", section(told) if name in told.found else _NOT_RUN]
    parts += ["## Load of the machine", _load(told.found)]
    return "\n\n".join(parts) + "\n"


def _verdict(made: Sequence[Aim]) -> str:
    measured = [aim.met for aim in made if aim.met is not None]
    return f"**{sum(measured)} of {len(measured)} aims that were measured are met; {len(made) - len(measured)} were not measured.**"


def _aims(made: Sequence[Aim]) -> str:
    said = {True: "met", False: "**missed**", None: "not measured"}
    return markdown(["", "aim", "reached", ""], [[aim.what, aim.aim, aim.reached, said[aim.met]] for aim in made], 1)


def _memory(told: Told) -> str:
    one = told.found["memory"]
    opened, wanted = len(one["separate"]) - 1, one["wanted"]
    fit = f"{opened} were opened one after the other" + (
        f", and {wanted} extrapolated by a straight line" if opened < wanted else ""
    )
    rows = [[f"{wanted} separate sessions", "", _gib(one["separate_bytes"]), ""]]
    for tables, size in one["served"].items():
        rows.append([f"ours, {tables}", _gib(one["tables"][tables]), _gib(size), f"{one['separate_bytes'] / size:.2f}"])
    return (
        "Proportional set size of one process, once every row of every table has been read. Ours is the whole server but for "
        f"its detection of languages: before anything is loaded it takes {_gib(one['server'])} GiB. Separate sessions are "
        f"plain ONNX Runtime, each on a model with weights and table of its own; {fit}.\n\n"
        + markdown(["", "tables GiB", "GiB", "separate / ours"], rows, 1)
    )


def _latency(told: Told) -> str:
    one = told.found["latency"]
    sides = [side for side in next(iter(one["ms"].values())) if side != latency.FIXED]
    rows = [
        [
            length,
            f"{each[latency.FIXED]:.2f}",
            *(f"{each[side]:.2f} ({each[side] / each[latency.FIXED]:.2f}x)" for side in sides),
        ]
        for length, each in one["ms"].items()
    ]
    head = ["tokens", "a fixed model, ms", *(f"{side} tables, ms" for side in sides)]
    return (
        f"Batch 1, from token ids to logits, medians of {one['rounds']} rounds in which all sides take turns; each round is in "
        "another language. The fixed model is one language's, with its table inside, under plain ONNX Runtime.\n\n"
        + markdown(head, rows, 0)
    )


def _streams(told: Told) -> str:
    one = told.found["streams"]
    sides = [streams.MIXED, streams.SINGLE, streams.SEPARATE]
    rows = [
        [clients, *(f"{each[side]['texts_per_s']:.1f} ({each[side]['p95_ms']:,.0f})" for side in sides)]
        for clients, each in one["loads"].items()
    ]
    return (
        f"{one['texts']} texts of {streams.SHORTEST} to {streams.LONGEST} tokens through the server's queue, texts a second and, "
        f"in parentheses, the 95th percentile of latency in ms, by number of clients that each wait for an answer; medians of "
        f"{one['rounds']} rounds. Separate sessions stand behind the same queue, and batch texts of their own language only. "
        f"Aims compare the best load of each side with 95% of answers within {told.bound_ms:g} ms.\n\n"
        + markdown(["clients", "mixed languages", "one language", "separate sessions"], rows, 0)
    )


def _pipelines(told: Told) -> str:
    one = told.found["pipelines"]
    rates = one["texts_per_s"]
    rows = [[name, f"{rate:.1f}", f"{rate / rates['pipeline']:.2f}"] for name, rate in rates.items()]
    tuned = ", ".join(f"{size}: {rate:.1f}" for size, rate in one["tuned"].items())
    return (
        f"{one['texts']} texts, {one['tokens']:,} tokens, from text to labels, medians of {one['rounds']} rounds in turns. The "
        f"pipeline (PyTorch, fp32) has the best of these batch sizes, in texts a second on some of them: {tuned}. Ours is the "
        "endpoint with its tokenizing, queue and answers, without its transports, in fp32 and with an int8 body.\n\n"
        + markdown(["", "texts/s", "/ pipeline"], rows, 1)
    )


def _adding(told: Told) -> str:
    one = told.found["adding"]
    seconds = one["seconds"]
    times = [[name, *(f"{value:.2f}" for value in values)] for name, values in seconds.items()]
    rows = [
        [tables, f"{each['table'] / _MB:.1f}", f"{each['added'] / _MB:.1f}", f"{each['added'] / each['table']:.2f}"]
        for tables, each in one["memory"].items()
    ]
    head = ["seconds, by round", *(str(number + 1) for number in range(one["rounds"]))]
    return (
        "A running server follows a folder. *publishing* is what `lingraft publish` takes for all tasks, *answering* from then "
        "until all tasks answer in the new language, rightly.\n\n"
        + markdown(head, times, 1)
        + "\n\nMemory of a language added to all tasks, once every row has been read:\n\n"
        + markdown(["tables", "table MB", "added MB", "added / table"], rows, 1)
    )


def _overhead(told: Told) -> str:
    one = told.found["overhead"]
    rows = [
        [shape, length, *(f"{each[side]:.2f}" for side in (overhead.BARE, overhead.REST, overhead.GRPC))]
        + [f"{each[side] - each[overhead.BARE]:.2f}" for side in (overhead.REST, overhead.GRPC)]
        for shape in ("served", "small")
        for length, each in one[shape].items()
    ]
    head = ["shape", "tokens", "bare ms", "REST ms", "gRPC ms", "REST adds ms", "gRPC adds ms"]
    return (
        f"One text a request on one connection, medians of {one['rounds']} rounds in turns, the client's own work included. "
        "The bare session is plain ONNX Runtime on the same ids. *small* is a body of 2 x 64.\n\n"
        + markdown(head, rows, 1)
    )


def _losses(told: Told) -> str:
    one = told.found["losses"]
    rows = [
        [tables, precision, *(_loss(each) for each in by_language.values())]
        for tables, by_precision in one["parity"].items()
        for precision, by_language in by_precision.items()
    ]
    languages = list(one["parity"]["float32"]["fp32"])
    shape = one["shape"]
    return (
        f"A trained primary of {shape['layers']} x {shape['width']}, and embeddings adapted to it: masked tokens found under ONNX "
        f"Runtime, in %, and points lost against PyTorch in float32, on held-out blocks ({one['blocks']}).\n\n"
        + markdown(["tables", "body", *languages], rows, 2)
    )


def _loss(each: Mapping[str, float]) -> str:
    return f"{100 * each['score']:.2f} ({100 * each['loss']:+.3f})" if "score" in each else "-"


def _body(told: Told) -> str:
    from benchmarks.serving import body

    return (
        "From token ids to logits, medians of rounds in turns. `exporter` is torch.onnx.export's graph with the table as an "
        "input, which bundles had before.\n\n" + body.table(told.found["body"]["ms"])
    )


def _load(found: Mapping[str, Any]) -> str:
    rows = [[name, *(f"{value:.1f}" for value in one["load_average"])] for name, one in found.items()]
    return (
        "Processes that wanted to run, over the last minute, before and after each part; what is above our own took part of the "
        "cores.\n\n" + markdown(["part", "before", "after"], rows, 1)
    )


def _gib(size: float) -> str:
    return f"{size / _GIB:.2f}"


_SECTIONS = {
    "memory": ("Memory", _memory),
    "latency": ("Latency", _latency),
    "streams": ("Throughput", _streams),
    "pipelines": ("Against Hugging Face pipelines", _pipelines),
    "adding": ("Adding a language", _adding),
    "overhead": ("The server's overhead", _overhead),
    "losses": ("What number formats cost", _losses),
    "body": ("The body's graph", _body),
}


def plot(told: Told) -> Drawing:
    """Memory, throughput by clients, and rates against pipelines; panels of parts that were not run stay away."""
    panels = {"memory": _draw_memory, "streams": _draw_streams, "pipelines": _draw_rates}
    there = {name: draw for name, draw in panels.items() if name in told.found}

    def paint(figure: "Figure") -> None:
        for axes, (name, draw) in zip(figure.subplots(1, len(there), squeeze=False)[0], there.items(), strict=True):
            draw(axes, told.found[name])

    return Drawing(NAME, "", "Serving", "", "Bars and lines: memory, throughput, rates.", 2.8, paint)


def _draw_memory(axes: "Axes", one: dict[str, Any]) -> None:
    sizes = {f"{one['wanted']} sessions": one["separate_bytes"], **one["served"]}
    _bars(axes, {name: size / _GIB for name, size in sizes.items()}, "memory, GiB")


def _draw_streams(axes: "Axes", one: dict[str, Any]) -> None:
    clients = [*map(int, one["loads"])]
    for side, colour in zip((streams.MIXED, streams.SINGLE, streams.SEPARATE), ("blue", "green", "grey"), strict=True):
        rates = [each[side]["texts_per_s"] for each in one["loads"].values()]
        axes.plot(clients, rates, "o-", color=COLOURS[colour], label=side)
    axes.set_xlabel("clients")
    axes.set_title("texts/s")
    axes.set_ylim(bottom=0)
    axes.legend()


def _draw_rates(axes: "Axes", one: dict[str, Any]) -> None:
    _bars(axes, one["texts_per_s"], "texts/s, from text to labels")


def _bars(axes: "Axes", values: Mapping[str, float], title: str) -> None:
    colours = [COLOURS["grey"], *[COLOURS["blue"]] * (len(values) - 1)]
    axes.bar_label(axes.bar([*values], [*values.values()], color=colours), fmt="%.1f", padding=2)
    axes.set_title(title)
    axes.margins(y=0.15)
