"""A figure of what the ranks of a pipeline do in a step: as predicted, and as measured in a trace."""

import re
from dataclasses import dataclass
from statistics import mean

from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from gridgrad.experiments.plots.figures import plt, save
from gridgrad.nn.files.documents import AT_LEAST_0, COUNT, TEXT, check, content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.parallel.pipeline.schedule import Instruction
from gridgrad.parallel.pipeline.simulate import Event

COLOURS = {"F": "#56B4E9", "B": "#E69F00", "I": "#F0E442", "W": "#009E73", "U": "#000000"}  # of Okabe and Ito
OTHERS, MESSAGE = "#e4e4e4", "#707070"
WORDS = {
    "F": "F: forward",
    "B": "B: backward",
    "I": "I: gradient of the input",
    "W": "W: gradient of the weights",
    "U": "U: sum of gradients, update",
}
COORDINATE = re.compile(r"(\w+)=(\d+)")
WIDTH, ROW, AROUND = 13.0, 0.42, 2.2  # inches: of the figure, of a rank, and of what stands around the panels
DIGIT = 0.068  # inches of a digit of a number in a box
NARROWEST = 0.012  # inches of a box


@dataclass(frozen=True)
class PipelineSteps:
    """Some steps of a pipeline. title: what it is. rows: for each rank along the axis `stage` its Events, in order.

    updates: how many updates of each rank are shown: one in a synchronous pipeline. last: the number, from 0, of the last of
    these; by default that of the step whose time is the median.
    """

    title: str
    rows: tuple
    updates: int = 1
    last: int | None = None

    def __post_init__(self):
        if min(map(len, self.ends), default=0) < self.updates:
            raise ValueError(f"{self.title}: it shows less than {self.updates} updates of each rank")

    @property
    def ends(self):
        """For each rank, when its updates ended."""
        return [[event.stop for event in row if event.instruction.op == "U"] for row in self.rows]

    @property
    def shown(self):
        """The number, from 0, of the last update that is shown."""
        if self.last is not None:
            return self.last
        count = min(map(len, self.ends))
        steps = sorted(range(self.updates, count), key=self.seconds)
        return steps[len(steps) // 2] if steps else count - 1

    def seconds(self, update):
        """Seconds of the steps up to an update: since the last rank had ended those before, or since the beginning."""
        before = update - self.updates
        begin = max(of[before] for of in self.ends) if before >= 0 else min(row[0].start for row in self.rows)
        return max(of[update] for of in self.ends) - begin

    def of_steps(self, row):
        """The Events of a row that belong to the steps that are shown."""
        ends = [place for place, event in enumerate(row) if event.instruction.op == "U"]
        last, before = self.shown, self.shown - self.updates
        return row[ends[before] + 1 if before >= 0 else 0 : ends[last] + 1]


def predicted(found, updates=1):
    """The PipelineSteps that a PipelinePrediction predicts, in the steady state."""
    count = found.schedule.micro_batches  # the steps that are played have numbers that go on

    def renumbered(event):
        instruction = event.instruction
        return event._replace(instruction=instruction._replace(micro_batch=instruction.micro_batch % count))

    rows = tuple(tuple(map(renumbered, row)) for row in found.played.events)
    return PipelineSteps("predicted", rows, updates, found.counted[1])


def measured(path, updates=1):
    """The PipelineSteps in a file of `train --trace`, with the first rank of each stage. ValueError if there is none."""
    try:
        content, stages, rows = content_of(read_limited(path)), {}, {}
        check(content, {"traceEvents": [{"name": TEXT}]})
        events = content["traceEvents"]
        for event in events:
            if event["name"] == "process_name":
                check(event, {"pid": COUNT, "args": {"name": TEXT}}, "an event")
                inside = event["args"]["name"].partition("(")[2].partition(")")[0]
                places = {axis: int(place) for axis, place in COORDINATE.findall(inside)}
                stage = places.pop("stage")
                if not any(places.values()):
                    stages[event["pid"]] = stage
            elif event.get("cat") == "instruction":
                check(event, {"pid": COUNT, "ts": AT_LEAST_0, "dur": AT_LEAST_0}, "an event")
                start = event["ts"] / 1e6
                one = Event(Instruction.parse(event["name"]), start, start + event["dur"] / 1e6)
                rows.setdefault(event["pid"], []).append(one)
        found = [sorted(rows[rank], key=lambda event: event.start) for rank in sorted(stages, key=stages.get)]
        if not found:
            raise ValueError("no rank is of a stage")
        run = PipelineSteps("measured", tuple(found), updates)
        if not any(event.stop > event.start for row in run.rows for event in run.of_steps(row)):
            raise ValueError("its steps take no time")
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is no timeline of a pipeline ({error}): train --trace writes one") from None
    return run


def draw_pipelines(runs, title, path):
    """Write a figure with a panel for each PipelineSteps, one above the other with the same scale of time. title: above all."""
    height = AROUND + sum(0.75 + ROW * len(run.rows) for run in runs)
    figure, panels = plt.subplots(
        len(runs), 1, figsize=(WIDTH, height), sharex=True, squeeze=False, layout="constrained",
        gridspec_kw={"height_ratios": [len(run.rows) for run in runs]},
    )  # fmt: skip
    parts = [[run.of_steps(row) for row in run.rows] for run in runs]
    begins = [min(row[0].start for row in rows) for rows in parts]
    length = max(max(row[-1].stop for row in rows) - begin for rows, begin in zip(parts, begins))
    for panel, run, rows, begin in zip(panels[:, 0], runs, parts, begins):
        draw_run(panel, run, rows, begin, length)
    panels[-1, 0].set_xlabel("time in milliseconds")
    ops = {event.instruction.op for run in runs for row in run.rows for event in row}
    handles = [Patch(color=COLOURS[op], label=words) for op, words in WORDS.items() if op in ops]
    handles += [Patch(facecolor=OTHERS, label="of other steps")]
    handles += [Line2D([], [], color=MESSAGE, lw=1, label="a message, until it is taken")]
    if any(len({event.instruction.chunk for event in row} - {None}) > 1 for run in runs for row in run.rows):
        handles.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="a later chunk of the rank"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(f"{title}\nNumbers in boxes are micro-batches. Bubble: the mean share of a step in which a rank is idle.",
                    fontsize=10)  # fmt: skip
    save(figure, path)


def draw_run(panel, run, rows, begin, length):
    """One panel. rows: the Events of the steps that are shown. begin: the time that is shown as 0. length: of the axis."""
    inches = (WIDTH - 2.4) / length  # of a second, about
    seconds = run.seconds(run.shown) / run.updates
    ends = []
    for rank, (row, every) in enumerate(zip(rows, run.rows)):
        chunks = sorted({event.instruction.chunk for event in row} - {None})
        for event in every:
            if event.instruction.op in COLOURS and event.stop > begin and event.start < begin + length:
                later = event.instruction.chunk not in (None, *chunks[:1])
                draw_box(panel, rank, event, begin, inches, event in row, later)
        busy = sum(event.stop - event.start for event in row if event.instruction.op in COLOURS) / run.updates
        ends.append(max(0.0, 1 - busy / seconds))
    draw_messages(panel, rows, begin)
    panel.set(xlim=(0, length * 1e3), ylim=(len(rows) - 0.45, -0.55))
    panel.set_yticks(range(len(rows)), [f"stage {rank}" for rank in range(len(rows))])
    panel.set_title(f"{run.title}: {seconds * 1e3:.4g} ms a step, bubble {mean(ends):.0%}", fontsize=10, loc="left")
    panel.tick_params(labelbottom=True)
    right = panel.twinx()
    right.set(ylim=panel.get_ylim(), ylabel="idle share of a step")
    right.set_yticks(range(len(rows)), [f"{share:.0%}" for share in ends])
    for side in (panel, right):
        side.spines[["top", "right"]].set_visible(False)
        side.tick_params(axis="y", length=0)


def draw_box(panel, rank, event, begin, inches, belongs, later):
    """One instruction. inches: of a second. belongs: to the steps that are shown. later: whether it is not the first chunk."""
    op, _, micro_batch = event.instruction
    width = max(event.stop - event.start, NARROWEST / inches)
    style = {"facecolor": COLOURS[op] if belongs else OTHERS, "edgecolor": "white", "linewidth": 0.5, "zorder": 2}
    if op == "U":
        style |= {"linewidth": 0}
    elif later:
        style |= {"hatch": "////"}
    panel.add_patch(Rectangle(((event.start - begin) * 1e3, rank - 0.36), width * 1e3, 0.72, **style))
    text = str(micro_batch)
    if op != "U" and width * inches > DIGIT * (len(text) + 0.6):
        middle = (event.start + width / 2 - begin) * 1e3
        panel.text(middle, rank, text, ha="center", va="center_baseline", fontsize=7.5, clip_on=True, zorder=4)


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
