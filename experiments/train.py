"""Train a network on a process grid.

    gridgrad train --dataset mnist --net mlp:512,512,relu
    mpiexec -n 4 gridgrad train --dataset mnist --net mlp:512,512,relu --grid batch=2,model=2

Every grid trains the same network on the same minibatches: compare `final_loss` in the reports.
"""

import contextlib
import io
import sys
from functools import partial, reduce
from operator import or_

import numpy as np
from mpi4py import MPI
from tqdm import tqdm

from gridgrad import datasets
from gridgrad.datasets import Augmented, augment, hold_out
from gridgrad.experiments.common import report, train_setup, workers_report
from gridgrad.experiments.common.checkpoints import (
    Checkpoints,
    Progress,
    check_checkpoints,
    prepare_checkpoints,
    settings_of,
)
from gridgrad.experiments.common.handicap import Handicap
from gridgrad.experiments.common.machine_load import load_of_job, verdict_of
from gridgrad.experiments.common.meaning import check_grid, notes
from gridgrad.experiments.common.options import (
    Parser,
    reduction_of,
    shares_of,
    user_input,
)
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.experiments.common.tables import counted, table
from gridgrad.experiments.parts import train_faults
from gridgrad.experiments.parts.step_timer import StepTimer
from gridgrad.experiments.parts.train_options import SHORT, WARM_UP, add_options
from gridgrad.experiments.parts.train_profile import watched
from gridgrad.experiments.parts.train_validation import Validation
from gridgrad.nn import LOSSES
from gridgrad.nn.files.whole_files import written_whole
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import (
    ProcessGrid,
    Profile,
    Trace,
    evaluate,
    parse_grid,
    predict,
    use_device,
)
from gridgrad.parallel.calibration.timing import core_seconds
from gridgrad.parallel.checkpoint.saver import Signals
from gridgrad.parallel.checkpoint.state import states_of
from gridgrad.parallel.choose.parallelize import completed
from gridgrad.parallel.choose.rebalance import Rebalancer
from gridgrad.parallel.choose.reductions import named_reduction
from gridgrad.parallel.grid.devices import checked_names
from gridgrad.parallel.grid.process_grid import GridDescription, check_places
from gridgrad.parallel.job.run import UserError, end_after_death, on_root, run
from gridgrad.parallel.observe.trace import STEPS, write_timeline
from gridgrad.parallel.partitioning.good_partition import is_partition
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.prediction.placement_spec import sizes_of
from gridgrad.parallel.protocols import protocol_names as protocols
from gridgrad.parallel.protocols.workers import divide, one_worker
from gridgrad.parallel.training import MicroBatchReader, check_finite, steps_per_epoch
from gridgrad.parallel.training.distribute import make_parallel

PRINTED = 8  # of the errors of single outputs; a report has all of them
PROBES = 3  # reference products between two steps with --core-speed: 0.2 milliseconds in all


def options():
    parser = Parser(prog="train", description="Train a network on a process grid.", short=SHORT)
    add_options(parser)
    return parser


def check_job(args, ranks):
    """Raise ValueError for options that a job of so many ranks would refuse before it reads data: see `programs.check_job`."""
    train_setup.complete(args, ranks)
    protocols.parse(args.protocol)
    train_setup.check_protocol(args, ranks)
    check_checkpoints(args)
    checked_names(args.device, ranks)
    if args.grid != "auto":
        check_places(args.grid, parse_grid(args.grid), ranks)
    train_setup.slowdowns(args.handicap, ranks)
    check_network(args, ranks)


def check_network(args, ranks):
    """Raise ValueError if the grid, the plan or the shares do not fit the network, which depends on the data.

    Nothing is checked where the data are not on this machine, and no plan that is a partition or that has stages.
    """
    with contextlib.suppress(OSError):
        data = datasets.load(args.dataset, args.data_dir)
        net = network_names.build(args.net, data.sample_shape, data.outputs, args.seed, args.dtype)
        sizes = {"batch": ranks} if args.grid == "auto" else parse_grid(args.grid)
        check_grid(sizes, net)
        shares = shares_of(args.shares, None if args.grid == "auto" else sizes) if args.shares not in (None, "auto") else None
        if args.plan not in (None, "auto") and not is_partition(args.plan) and sizes.get("stage", 1) == 1:
            place(net, GridDescription(sizes), args.plan, shares, None)


def main():
    for _ in training(options().parse_args()):
        pass


def training(args):
    """Train as the options say. A generator that yields after each step, where another training may take its turn."""
    comm = MPI.COMM_WORLD
    say = print if comm.rank == 0 and not args.quiet else lambda *_: None
    warn = partial(print, file=sys.stderr, flush=True) if comm.rank == 0 else lambda *_: None
    np.seterr(all="ignore")  # a loss that is not finite is found and named below

    # ----- the grid, the data, and the network, written serially
    with user_input():
        train_setup.complete(args, comm.size)
        make_protocol = protocols.parse(args.protocol)
        train_setup.check_protocol(args, comm.size)
        check_checkpoints(args)
        signals = Signals()
        if args.checkpoint:
            signals.listen()
        use_device(comm, args.device, args.tf32)
        sizes = sizes_of(args.grid, comm.size)
        grid = sizes and ProcessGrid(comm, **sizes)
        handicaps = train_setup.slowdowns(args.handicap, comm.size)
    on_root(comm, lambda: (prepare_checkpoints(args), train_setup.prepare(args)))
    data = train_setup.load(args, comm)
    content = train_setup.content_of(data, comm) if args.checkpoint or args.resume else None
    with user_input():
        serial = network_names.build(args.net, data.sample_shape, data.outputs, args.seed, args.dtype)
        if grid:
            check_grid(sizes, serial)
        image_shape, data = data.sample_shape, data.reshaped(serial.input_shape)
        train, held_out = hold_out(data.train, args.validation, args.seed) if args.validation else (data.train, None)
        if args.sorted:
            train = train_setup.sorted_by_label(train)
        if args.augment is not None:
            train = Augmented(train, augment.parse(args.augment, args.seed), image_shape)
    if args.batch_size > len(train):
        raise UserError(f"--batch-size {args.batch_size} is larger than the data: {len(train)} training samples; give at most "
                        "as many")  # fmt: skip
    per_epoch = steps_per_epoch(len(train), args.batch_size)
    steps = args.steps or (args.epochs or 10) * per_epoch

    # ----- this rank's part of the network
    with user_input():
        asked, beside = train_setup.placement_spec(args, sizes)
        grid, placing = completed(serial, asked, grid, args.batch_size, alternatives=beside)
        own_grid, workers = one_worker(grid) if args.protocol == protocols.SYNC else divide(grid)
        handicap = Handicap(*handicaps[comm.rank]) if args.handicap else None
        balance = train_setup.balance(args, serial, grid, placing, handicap)
        if args.shares == "auto" and balance:
            placing = balance.placed(placing)
        net = make_parallel(serial, own_grid, placing, partial(named_reduction, **reduction_of(args)))
        train_setup.check_memory(args, serial, net, workers.size)
        protocol = make_protocol(net, workers, lambda updated: train_setup.make_optimizer(args, updated, steps))
        if handicap:
            handicap.slow_down(net)
        rebalances = args.rebalance and balance
        rebalancer = Rebalancer(net, serial, protocol.optimizer, balance, args.rebalance, steps) if rebalances else None
        checks = train_faults.Faults(args, comm, net, protocol)
    own = train_setup.held(protocol, train, args.seed) if protocol.shuffles or protocol.exchanges else train
    loss = LOSSES[data.loss]()
    reader, test_batch = MicroBatchReader(READERS[args.reader](net, own)), train_setup.evaluation_batch(args, serial)
    validation = Validation(net, held_out, data.loss, args.reader, test_batch, args.patience) if held_out else None
    if rebalancer and validation:
        net.observe(validation)
    held = f"{len(held_out)} held out, " if held_out else ""
    say(f"{data.name}{' (synthetic)' * data.synthetic}: {len(train)} training samples, {held}{len(data.test)} to test")
    if data.note:
        say(data.note)
    say(f"{args.net} on {grid} ({counted(grid.size, 'rank')}), this rank holds {net.size} parameters:\n{net}")
    if args.shares == "auto":
        say("\n".join(balance.lines()) if balance else "one rank shares nothing")
    memory, devices = report.memory(net, protocol, grid), report.devices(grid)
    if comm.rank == 0 and set(devices) != {"cpu"}:
        say("devices:", ", ".join(f"{name} on {devices.count(name)} of {comm.size} ranks" for name in dict.fromkeys(devices)))
    state, unsharded = (memory[name] / 2**20 for name in ("optimizer_state", "optimizer_state_unsharded"))
    less = f" instead of {unsharded:.2f}" if state < unsharded else ""
    if net.pipeline:
        say(f"pipeline {net.pipeline}, {net.micro_batches} micro-batches a step")
    for note in notes(args, grid, args.batch_size, comm.allgather(net.size) if net.pipeline else []):
        say(f"note: {note}")
    say(f"reduction {net.reduction}; the optimizer's state takes {state:.2f} MiB a rank{less}")
    if workers.size > 1:
        say(f"protocol {args.protocol}, {workers.size} workers")

    # ----- training
    job = {"P": grid.size, "grid": str(grid)}
    progress, trainer = Progress(), net.trainer(loss, protocol)
    flush = lambda: progress.losses.extend(trainer.flush())  # noqa: E731
    participants = states_of(net) | {"protocol": protocol, "progress": progress}
    participants |= {"validation": validation} if validation else {}
    settings = settings_of(args, net, len(train), steps, content)
    best = lambda: validation and validation.value  # noqa: E731
    program = {"signals": signals, "settings": settings, "value": best, "flush": flush, "say": warn}
    with user_input():
        checkpoints = Checkpoints(args, comm, net, participants, workers, program, say)
    checkpoints.resume()
    if validation and not (args.patience and (validation.stop or net.step >= steps)):
        validation.go_on()
    if net.step >= steps:
        say(f"note: nothing is left to train: the checkpoint has {net.step} steps, and {steps} are asked for")
    if rebalancer:
        rebalancer.times.begin_anew()  # the step from which it counts may be another one now
    first = min(WARM_UP, max(0, steps - net.step - 1))
    profile = Profile(net) if args.profile else None
    trace = Trace(net, args.trace_steps or STEPS) if args.trace else None
    timer = StepTimer(net, reader, partial(core_seconds, PROBES) if args.core_speed else None)
    shares = protocol.shares(len(train), args.batch_size, args.seed)
    turns = () if validation and validation.stop else protocol.turns(shares, steps, checkpoints.boundary)
    silent = None if comm.rank == 0 and not args.quiet else True
    with tqdm(total=steps, initial=net.step, unit=" steps", delay=2, disable=silent) as bar:
        for number, turn in enumerate(watched(turns, first, profile, trace)):
            if number == first:
                timer.start()
            if args.augment:
                train.epoch = turn.step // per_epoch
            ended = -(-steps // per_epoch) if turn.step + 1 == steps else (turn.step + 1) // per_epoch
            epoch_ends = ended > progress.epochs
            with timer.step(turn.whole):
                progress.losses += trainer.step(reader.parts(turn.indices, net.micro_batches), turn.samples)
                if epoch_ends or trace and number + 1 in (first, first + trace.steps):  # a trace begins and ends in step
                    flush()
            checks.after_step(turn.step)
            if rebalancer and (proposal := rebalancer.after_step()):
                say(train_setup.in_words(proposal))
            bar.update(turn.step + 1 - bar.n)
            if epoch_ends:
                recent = progress.end_epoch(ended)
                seen = f"validation {validation.see():.6f}, " if validation else ""
                say(f"epoch {ended}: mean loss {sum(recent) / len(recent):.6f}, {seen}step {turn.step + 1} of {steps}")
                if validation and validation.stop:
                    break
            yield turn.step
    watched_machine = timer.watch.seen()
    flush()
    peak = report.peak_memory()  # before results are gathered
    if args.patience:
        check_finite(net)
        if validation.early.best_epoch and not validation.exchanged:
            validation.exchange()
        say(f"back to the weights of epoch {validation.early.best_epoch}, validation {validation.early.best:.6f}")
    checkpoints.finish(net.step, validation.early.best_epoch if validation and validation.exchanged else None)
    protocol.finish()
    if protocol.lost:  # there is no job of all ranks any more: the first worker reports what it has
        if workers.rank:
            end_after_death(0)
        warn(f"{protocol.lost} of {workers.size} workers died; the others went on")
        grid, comm = net.grid, net.grid.comm  # of all that is gathered below
    check_finite(net)
    hidden = report.overlap(net)
    measured = report.time_and_bytes(grid, timer.seconds, reader.seconds, peak)
    measured = measured and measured | {"device": devices, "memory": memory, "overlap": hidden}
    load = None if protocol.lost else load_of_job(comm, watched_machine)  # what the dead took is not known
    measured = measured and measured | {"load": load.entry() if load and measured["timed_steps"] else None}
    core = report.core_speed(grid, timer.seconds, timer.reference) if args.core_speed else None
    measured = measured and measured | {"core": core if set(devices) == {"cpu"} else None}  # GPUs are no cores
    if profile:
        layers = profile.rows(len(timer.seconds))
        measured = measured and measured | {"layers": layers}
    timeline = trace.timeline() if trace else None
    losses = workers_report.losses_of_all(grid, net, protocol, progress.losses)
    followed = workers_report.of_protocol(grid, net, protocol, args.batch_size)

    # ----- testing, on the same grid: all workers have the same network
    test_reader = READERS[args.reader](net, data.test)
    tested = evaluate(net, data.test, data.loss, test_reader, test_batch)
    if data.loss == "cross-entropy":
        say(f"test accuracy {tested['accuracy']:.2f} %")
    else:
        rmse = ", ".join(f"{value:.4g}" for value in tested["rmse"][:PRINTED]) + ", .." * (len(tested["rmse"]) > PRINTED)
        say(f"test mean squared error {tested['mse']:.5f} (standardised), root {rmse} {data.units}")

    # ----- results
    if args.predictions:
        outputs = predict(net, data.test, test_reader, test_batch)
        on_root(comm, lambda: write_predictions(args.predictions, data.test.unstandardise(outputs)))
    if args.report:
        ended = {"samples_per_step": timer.samples_per_step, "rebalancing": rebalancer and rebalancer.log}
        ended |= {f"test_{name}": value for name, value in tested.items()}
        ended |= {"params_digest": report.digest(net), "flops_a_sample": report.flops_a_sample(serial)}
        validated = validation.report() if validation else {}
        sections = job, net.pipeline_report(), followed, checkpoints.report(), validated, measured, ended
        on_root(comm, lambda: report.write_json(args.report, summarise(args, data, net, losses, sections)))
    if args.trace:
        on_root(comm, lambda: write_timeline(args.trace, timeline))
    if measured and timer.seconds:
        say(table(report.in_words(measured, timer.samples_per_step)))
        if words := verdict_of(measured):
            say(f"note: while steps were timed, {words}")
    say_files(args, say, checkpoints.failure)
    if followed:
        say(workers_report.in_words(followed, measured))
    checkpoints.end()
    if protocol.lost:
        end_after_death(0)
    checks.stop()
    grid.free()


def say_files(args, say, failure):
    """Print which files a training has written, if any. failure: what is wrong with the last checkpoint, or None."""
    kinds = "report", "predictions", "trace", *([] if failure else ["checkpoint"])
    named = {name: getattr(args, name) for name in kinds if getattr(args, name)}
    if named:
        further = f"; to go on: --resume {args.checkpoint} and more steps" if "checkpoint" in named else ""
        say(f"written: {', '.join(f'{name} {path}' for name, path in named.items())}{further}")


def summarise(args, data, net, losses, sections):
    """The report of a run. sections: what its parts say of themselves, dicts."""
    found = {
        "program": "train",
        "settings": vars(args),
        "dataset": data.name,
        "synthetic": data.synthetic,
        "net": args.net,
        "features": data.features,
        "outputs": data.outputs,
        "plan": net.plan,
        "protocol": args.protocol,
        "reduction": str(net.reduction),
        "versions": report.versions(),
        "steps": len(losses),
        "loss": losses,
        "final_loss": losses[-1],
    }
    return reduce(or_, sections, found)


def write_predictions(path, outputs):
    content = io.BytesIO()  # NumPy does not say why it can not write to a file
    np.save(content, outputs, allow_pickle=False)
    with written_whole(path) as beside:
        beside.write_bytes(content.getbuffer())


if __name__ == "__main__":
    run(main)
