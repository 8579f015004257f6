"""Timelines of ranks: what each does in a step, of a trace of `train --trace`; of a pipeline beside what is predicted."""

import re
from collections import defaultdict
from statistics import mean
from typing import NamedTuple

from gridgrad.experiments.plots import style as looks
from gridgrad.nn.files.documents import AT_LEAST_0, COUNT, TEXT, check, content_of_file
from gridgrad.parallel.pipeline.schedule import Instruction
from gridgrad.parallel.pipeline.simulate import Event

UNDER_WAY = "collective or message under way"
KINDS = {"compute": looks.COMPUTE, "read": "#009E73", "communicate": looks.COMMUNICATE, "wait": looks.WAIT,
         UNDER_WAY: looks.GREY}  # fmt: skip
OPS = {"F": "#56B4E9", "B": "#E69F00", "I": "#F0E442", "W": "#009E73", "U": "#000000"}  # of Okabe and Ito
WORDS = {"F": "F: forward", "B": "B: backward", "I": "I: gradient of the input", "W": "W: gradient of the weights",
         "U": "U: sum of gradients, update"}  # fmt: skip
OTHERS, MESSAGE = "#e4e4e4", "#707070"
SPAN = {"pid": COUNT, "tid": COUNT, "cat": TEXT, "ts": AT_LEAST_0, "dur": AT_LEAST_0}
COORDINATE, STEP = re.compile(r"(\w+)=(\d+)"), re.compile(r"step (\d+)")
ROW, AXIS = 0.3, 0.45  # inches of a rank, and of the numbers below a panel
MOST_ROWS = 64  # ranks of a trace that are drawn
NARROWEST = 0.008  # inches of a box


def read(path):
    """({rank: its place in the grid, a text}, [the spans of the trace, dicts]); ValueError for a file that is no trace."""
    try:
        content, ranks, spans = content_of_file(path), {}, []
        check(content, {"traceEvents": [{"name": TEXT}]})
        for event in content["traceEvents"]:
            if event["name"] == "process_name":
                check(event, {"pid": COUNT, "args": {"name": TEXT}}, "an event")
                ranks[event["pid"]] = event["args"]["name"].partition("(")[2].partition(")")[0]
            elif event.get("ph") == "X":
                check(event, SPAN | ({"args": {"bytes": COUNT}} if event.get("cat") == "flight" else {}), "an event")
                spans.append(event)
        if not spans:
            raise ValueError("no rank does anything")
        ranks = dict.fromkeys((span["pid"] for span in spans), "") | ranks
    except ValueError as error:
        raise ValueError(f"{path} is no timeline ({error}): train --trace writes one") from None
    return ranks, spans


def steps_of(path, spans):
    """{number: (start, stop)} of the steps in the spans of a trace, over all ranks, in microseconds. ValueError without any."""
    found = {}
    for span in spans:
        if span["cat"] == "step" and (match := STEP.fullmatch(span["name"])):
            start, stop = found.get(number := int(match[1]), (span["ts"], 0))
            found[number] = min(start, span["ts"]), max(stop, span["ts"] + span["dur"])
    if not found:
        raise ValueError(f"{path} has no whole step: train more --steps")
    return found


def kind_of(span):
    """Which of KINDS a span is of; None for one that only lies around others, and for what goes on beside the rank."""
    if span["cat"] == "layer":
        return "read" if span["name"].startswith("reader ") else "compute"
    if span["cat"] == "waiting" or span["name"].endswith(" receive, progress"):
        return "wait"  # a rank that receives waits for the message
    return "communicate" if span["cat"] in ("collective", "begin", "progress") else None


def draw(path, steps=None, look=looks.FITTING):
    """The figure of a trace, a row a rank. steps: (first, last), by default those of the step of median length."""
    ranks, spans = read(path)
    known = steps_of(path, spans)
    lengths = sorted(known, key=lambda number: known[number][1] - known[number][0])
    first, last = steps or (lengths[len(lengths) // 2],) * 2
    if not {first, last} <= known.keys():
        raise ValueError(f"--steps: the trace has the steps {min(known)} to {max(known)}")
    begin, end = known[first][0], known[last][1]
    shown = sorted(ranks)[:MOST_ROWS]
    figure, [[axes]] = looks.frame(1, 1, look.width or looks.PAGE, AXIS + ROW * max(2, len(shown)))
    boxes = defaultdict(list)
    for span in (span for span in spans if begin <= span["ts"] < end):
        box = (span["ts"] - begin) / 1e3, span["dur"] / 1e3
        boxes[span["pid"], UNDER_WAY if span["cat"] == "flight" else kind_of(span)].append(box)
    for row, rank in enumerate(shown):
        for kind, colour in KINDS.items():  # waiting lies on what waits, so it comes last
            height = (row + 0.24, 0.1) if kind == UNDER_WAY else (row - 0.32, 0.5)
            axes.broken_barh(boxes[rank, kind], height, facecolor=colour, lw=0)
    places = {rank: dict(COORDINATE.findall(text)) for rank, text in ranks.items()}
    several = [axis for axis in next(iter(places.values())) if len({place.get(axis) for place in places.values()}) > 1]
    places = {rank: ", ".join(f"{axis} {of[axis]}" for axis in several if axis in of) for rank, of in places.items()}
    set_axes(axes, (end - begin) / 1e3, [f"rank {rank}" + f" ({places[rank]})" * bool(places[rank]) for rank in shown])
    axes.set_xlabel("time in milliseconds")
    for number in (number for number in known if first < number <= last):
        axes.axvline((known[number][0] - begin) / 1e3, color="black", lw=0.6, ls=":")
    used = {kind for (rank, kind), found in boxes.items() if found and rank in shown}
    which = f"Step {first}" if first == last else f"Steps {first} to {last}"
    left_out = f"; {len(shown)} of {len(ranks)} ranks" if len(ranks) > len(shown) else ""
    return looks.finish(figure, look, [(looks.patch(colour), kind) for kind, colour in KINDS.items() if kind in used],
                        [f"{which}, the clocks of all ranks compared{left_out}."])  # fmt: skip


def set_axes(axes, length, names):
    """Time from 0 to `length` milliseconds, and a row for each name."""
    axes.set(xlim=(0, length), ylim=(len(names) - 0.45, -0.55))
    axes.set_yticks(range(len(names)), names, fontsize=looks.SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


# ----- the steps of a pipeline, as predicted and as measured


class PipelineSteps(NamedTuple):
    """Some steps of a pipeline. rows, shown: of each rank along the axis `stage` all Events, and those of the steps, in order.
    seconds: of all these steps. updates: of each rank in them."""

    title: str
    rows: tuple
    shown: tuple
    seconds: float
    updates: int


def steps_shown(title, rows, updates, last=None):
    """The PipelineSteps with `updates` updates of each rank, of which a synchronous pipeline has one in a step. last: the
    number, from 0, of the last of these; by default they take the median time of all."""
    ends = [[place for place, event in enumerate(row) if event.instruction.op == "U"] for row in rows]
    if (count := min(map(len, ends), default=0)) < updates:
        raise ValueError(f"{title}: it shows less than {updates} updates of each rank")
    stops = [max(row[of[update]].stop for row, of in zip(rows, ends)) for update in range(count)]  # of the last rank
    begin = min(row[0].start for row in rows)
    seconds = [stop - (stops[update - updates] if update >= updates else begin) for update, stop in enumerate(stops)]
    if last is None:
        steps = sorted(range(updates, count), key=seconds.__getitem__) or [count - 1]
        last = steps[len(steps) // 2]
    shown = tuple(row[([-1] * updates + of)[last] + 1 : of[last] + 1] for row, of in zip(rows, ends))
    return PipelineSteps(title, rows, shown, seconds[last], updates)


def predicted(found, updates=1):
    """The PipelineSteps that a PipelinePrediction predicts, in the steady state."""
    count = found.schedule.micro_batches  # the steps that are played have numbers that go on
    rows = [[event._replace(instruction=event.instruction._replace(micro_batch=event.instruction.micro_batch % count))
             for event in row] for row in found.played.events]  # fmt: skip
    return steps_shown("predicted", tuple(map(tuple, rows)), updates, found.counted[1])


def measured(path, updates=1):
    """The PipelineSteps in a file of `train --trace`, with the first rank of each stage. ValueError if there is none."""
    ranks, spans = read(path)
    places = {rank: {axis: int(place) for axis, place in COORDINATE.findall(text)} for rank, text in ranks.items()}
    stages = {rank: place.pop("stage") for rank, place in places.items() if "stage" in place}
    first, rows = [rank for rank in sorted(stages, key=stages.get) if not any(places[rank].values())], {}
    try:
        for span in (span for span in spans if span["cat"] == "instruction"):
            event = Event(Instruction.parse(span["name"]), span["ts"] / 1e6, (span["ts"] + span["dur"]) / 1e6)
            rows.setdefault(span["pid"], []).append(event)
        if not first:
            raise ValueError("no rank is of a stage")
        found = tuple(sorted(rows.get(rank, ()), key=lambda event: event.start) for rank in first)
        run = steps_shown("measured", found, updates)
        if not any(event.stop > event.start for row in run.shown for event in row):
            raise ValueError("its steps take no time")
    except ValueError as error:
        raise ValueError(f"{path} is no timeline of a pipeline ({error}): train --trace writes one") from None
    return run


def draw_pipelines(runs, title, path):
    """Write a figure with a panel for each PipelineSteps, one above the other with the same scale of time."""
    figure, panels = looks.frame(len(runs), 1, looks.PAGE, [AXIS + ROW * len(run.rows) for run in runs], sharex=True)
    begins = [min(row[0].start for row in run.shown) for run in runs]
    length = max(max(row[-1].stop for row in run.shown) - begin for run, begin in zip(runs, begins))
    for [panel], run, begin in zip(panels, runs, begins):
        draw_run(panel, run, begin, length)
    panel.set_xlabel("time in milliseconds")
    ops = {event.instruction.op for run in runs for row in run.rows for event in row}
    legend = [(looks.patch(OPS[op]), words) for op, words in WORDS.items() if op in ops]
    legend += [(looks.patch(OTHERS), "of other steps"), (looks.mark(color=MESSAGE, lw=1), "a message, until it is taken")]
    if any(len({event.instruction.chunk for event in row} - {None}) > 1 for run in runs for row in run.rows):
        legend.append((looks.patch("white", edgecolor="black", hatch="////"), "a later chunk of the rank"))
    words = (f"{title}. Numbers in boxes are micro-batches, those at the right the idle share of a step. "
             "Bubble: the mean of these.")  # fmt: skip
    looks.save(looks.finish(figure, looks.FITTING, legend, [words]), path, looks.DPI)


def draw_run(panel, run, begin, length):
    """One panel. begin: the time that is shown as 0. length: of the axis, in seconds."""
    idle = []
    inch = length / looks.inches_of(panel)  # in seconds
    for rank, (row, every) in enumerate(zip(run.shown, run.rows)):
        chunks = sorted({event.instruction.chunk for event in row} - {None})
        for event in every:
            op, chunk, number = event.instruction
            if op not in OPS or event.stop <= begin or event.start >= begin + length:
                continue
            width, start = max(event.stop - event.start, NARROWEST * inch), event.start - begin
            how = {} if op == "U" else {"lw": 0.4, "hatch": "////" if chunk not in chunks[:1] else None}
            panel.broken_barh([(start * 1e3, width * 1e3)], (rank - 0.36, 0.72), edgecolor="white", zorder=2,
                              facecolor=OPS[op] if event in row else OTHERS, **{"lw": 0} | how)  # fmt: skip
            if op != "U" and len(str(number)) < looks.letters(width / inch, looks.SMALL):
                panel.text((start + width / 2) * 1e3, rank, number, ha="center", va="center_baseline", fontsize=looks.SMALL,
                           clip_on=True, zorder=4)  # fmt: skip
        busy = sum(event.stop - event.start for event in row if event.instruction.op in OPS)
        idle.append(max(0.0, 1 - busy / run.seconds))
    draw_messages(panel, run.shown, begin)
    set_axes(panel, length * 1e3, [f"stage {rank}" for rank in range(len(run.rows))])
    panel.set_title(f"{run.title}: {run.seconds / run.updates * 1e3:.4g} ms a step, bubble {mean(idle):.0%}")
    right = panel.secondary_yaxis("right")
    right.set_yticks(range(len(run.rows)), [f"{share:.0%}" for share in idle], fontsize=looks.SMALL)
    right.tick_params(length=0)
    right.spines[:].set_visible(False)
    panel.spines[["top", "right"]].set_visible(False)


def draw_messages(panel, rows, begin):
    """A line from where each message is sent to where it is taken. rows: the Events of the steps that are shown."""
    taken = {}  # {(RECV_F or RECV_B, chunk, micro-batch): (rank, time)}, of the last step that is shown
    for rank, row in enumerate(rows):
        taken |= {event.instruction: (rank, event.stop) for event in row if event.instruction.op.startswith("RECV")}
    for rank, row in enumerate(rows):
        for event in row:
            op, chunk, micro_batch = event.instruction
            if op.startswith("SEND"):
                what = Instruction(op.replace("SEND", "RECV"), chunk + (1 if op == "SEND_F" else -1), micro_batch)
                to, time = taken.get(what, (None, 0))
                if to is not None and time >= event.start:
                    side = 0.36 if to > rank else -0.36
                    x = (event.start - begin) * 1e3, (time - begin) * 1e3
                    panel.plot(x, (rank + side, to - side), color=MESSAGE, lw=0.6, alpha=0.7, zorder=3)
