"""Appendix A of Marques 2016, a stacked autoencoder: its items, and how long an epoch takes (Tables II and III) on one core.

What the job printed for each width, a line each, may stand in FILE, for measurements of the other tables that have none:

    for width in 500 3150 5000 5950 7250; do gridgrad launch 1 papers.marques2016.epoch_job --width $width; done \\
        > results/marques2016/epochs.jsonl
"""

import re
from functools import partial
from pathlib import Path

from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.launching.start_ranks import mpiexec, printed_json
from gridgrad.experiments.papers.cited import Formula
from gridgrad.experiments.papers.items import Item, ItemRow
from gridgrad.experiments.papers.marques2016.runs import TIMEOUT
from gridgrad.experiments.papers.marques2016.scaling import KNOWN, said
from gridgrad.experiments.papers.other_results import kept, where
from gridgrad.experiments.papers.parts import PaperPart
from gridgrad.experiments.plots.style import measured_on
from gridgrad.nn.files.documents import UNFIT, contents_of_lines

WIDTHS = 500, *sorted(row["width"] for row in KNOWN.tables["III"].lines())  # of the first hidden layer
FILE = Path("results/marques2016/epochs.jsonl")
RESULTS, COMMAND = "results/marques2016/tables.json", "reproduce marques2016"
AUTOENCODER = Path("results/autoencoder.json")
STEPS, SHORT_STEPS = 50, 10  # that are timed of each phase of an epoch
SECONDS = Formula("a time in hours, minutes and seconds, in seconds", lambda text: seconds_of(text))
TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(\d+)s")


def seconds_of(text):
    """The seconds of a time such as "1h51m24s"."""
    hours, minutes, seconds = (int(part or 0) for part in TIME.fullmatch(text).groups())
    return 3600 * hours + 60 * minutes + seconds


def epochs(steps):
    """Parts that time an epoch of the autoencoders of Appendix A. steps: that are timed of each phase."""
    return [
        PaperPart(f"an epoch of 784-{width}-250-10", partial(epoch, width, steps), 3 + 2 * steps * width / 25_000,
             {"width": width, "steps": steps})
        for width in WIDTHS
    ]  # fmt: skip


def epoch(width, steps):
    """What the job prints that times an epoch. width: of the first hidden layer."""
    words = [*as_module("papers.marques2016.epoch_job"), "--width", str(width), "--steps", str(steps)]
    return printed_json(mpiexec(1, words, TIMEOUT), f"an epoch of 784-{width}-250-10")


def epoch_row(result):
    """A row of the table of epochs. result: of `epoch`."""
    phases = {f"{phase}, s": seconds for phase, seconds in result["seconds"].items()}
    about = {"network": f"784-{result['width']}-250-10", "width": result["width"], "steps": result["steps"]}
    return about | phases | {"epoch, s": sum(phases.values()), "machine": measured_on(result["versions"])}


def kept_epochs(path=FILE):
    """(the rows of what FILE holds, ""), or (none, why), where it is damaged or holds lines of several machines."""
    try:
        rows = [epoch_row(result) for _, result in contents_of_lines(path)] if path.exists() else []
    except (*UNFIT, OSError) as error:
        return [], f"{path} does not hold the seconds of epochs ({type(error).__name__})."
    if len({row["machine"] for row in rows}) > 1:
        return [], f"{path} has epochs of several machines."
    return rows, ""


def autoencoder():
    """(what the study `autoencoder` has found, see `of_autoencoder`, ""), or (None, why there is nothing)."""
    return kept(AUTOENCODER, of_autoencoder)


def of_autoencoder(report):
    """What this project uses of a report of the study `autoencoder`: the error in percent, after how many epochs, and where."""
    settings, versions = report["settings"], report["versions"]
    epochs = settings["pretrain_epochs"], settings["epochs"]
    return {
        "error": float(report["test_error"]), "epochs": sum(epochs), "processor": versions["processor"],
        "how": f"{epochs[0]} epochs of pre-training, {epochs[1]} of fine-tuning", "where": where(AUTOENCODER, versions),
    }  # fmt: skip


def appendix(tables):
    """Appendix A: a stacked autoencoder."""
    found, why = autoencoder()
    error, how, processor = (found["error"], found["how"], found["processor"]) if found else (None, "", "")
    yield Item(
        "Appendix A: error", "classification error of 784-500-250-10 on MNIST, %", "Appendix A, section IV",
        (ItemRow("test error", KNOWN.values["classification error"], error, remark=how),),
        "The paper trains for 1,500 epochs and names no corruption of the inputs; here training is much shorter.",
        str(AUTOENCODER), processor=processor, reason=why and f"Nothing is kept: {why}.",
        command="study autoencoder --validation 0.16667 --corruption 0.25 --pretrain-epochs 15 --epochs 30 --energy "
        f"--report {AUTOENCODER}",
    )  # fmt: skip
    yield from times(tables)


def times(tables):
    """Tables II and III of Appendix A: how long an epoch takes."""
    apart = "epochs" not in tables  # what is kept of the other tables has none
    lines, unfit = kept_epochs() if apart else (tables["epochs"], "")
    by_width = {line["width"]: line for line in lines}
    machine = next((line["machine"] for line in lines), "") if apart else ""
    results = str(FILE) if apart else RESULTS

    def timed(width, cited):
        """A row that holds one core against the desktop GPU."""
        line = by_width.get(width)
        remark = f"scaled from {line['steps']} steps" if line else ""
        label = f"784-{width}-250-10, refGPU against one core here: seconds of an epoch"
        return ItemRow(label, cited, line and line["epoch, s"], remark=remark)

    why = (
        "One core of a CPU here, whose products of matrices are those of OpenBLAS; in the OpenCL kernels of the paper each "
        "work-item adds up one output. The images are made up, of MNIST's size; the time does not depend on their values."
    )
    two = KNOWN.tables["II"].lines()
    phones = [ItemRow(f"784-500-250-10, {line['device']}: seconds of an epoch", SECONDS(said("II", "time", line["device"])))
              for line in two[1:]]  # fmt: skip
    energy = [ItemRow(f"{line['device']}: {column}", said("II", column, line["device"]))
              for column in ("W", "Wh", "percent of the GPU") for line in two if line[column] != "-"]  # fmt: skip
    yield Item(
        "Appendix A: Table II", "time and energy of an epoch of 784-500-250-10", "Appendix A, Table II",
        (timed(500, SECONDS(said("II", "time", "refGPU"))), *phones, *energy), why, results, command=COMMAND,
        reason="Energy needs phones and a power meter, or counters (RAPL), which virtual machines do not show."
        + (unfit and f" {unfit}"),
        processor=machine, compares=False,
    )  # fmt: skip
    rows = []
    for line in KNOWN.tables["III"].lines():
        device, width = line["device"], line["width"]
        rows.append(timed(width, SECONDS(said("III, desktop", "time", device))))
        rows.append(ItemRow(f"784-{width}-250-10, {device}: seconds of an epoch", SECONDS(said("III", "time", device))))
        label = f"784-{width}-250-10: weights"
        rows.append(ItemRow(label, said("III", "weights", device), None, weights_of(width)))
    yield Item(
        "Appendix A: Table III", "the largest networks that phones hold: time of an epoch, and weights",
        "Appendix A, Table III", tuple(rows),
        f"{why} The numbers of weights follow from the widths; the largest width for a given memory is in "
        "results/autoencoder.md.",
        results, "784 w + 250 w + 2500 weights and w + 260 biases", COMMAND,
        reason="The largest width is that of a phone's memory, and there is no phone here." + (unfit and f" {unfit}"),
        processor=machine, compares=False,
    )  # fmt: skip


def weights_of(width):
    """Weights and biases of 784-width-250-10."""
    return 784 * width + width * 250 + 250 * 10 + width + 250 + 10
