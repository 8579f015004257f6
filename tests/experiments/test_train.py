"""The training program as its users call it: on several grids, and with every kind of bad input."""

import gzip
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.datasets import mnist
from gridgrad.experiments.parts.train_options import SHORT
from gridgrad.experiments.train import options as options_of_train
from gridgrad.parallel.grid.process_grid import parse_grid
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.programs import assert_refused, job

SETTINGS = ["--net", "mlp:11,31,relu,dropout=0.1", "--batch-size", "97", "--epochs", "2", "--dtype", "float64"]


def train(ranks, *arguments, timeout=120):
    return job(ranks, "train", *arguments, timeout=timeout)


ALL_GRIDS = "batch=2,model=1", "batch=1,model=3", "batch=2,model=2"


@pytest.mark.parametrize(
    ("plan", "grids"),
    [
        ("fewest-bytes", ["batch=2,model=2"]),
        *(pytest.param(plan, ALL_GRIDS, marks=pytest.mark.long) for plan in ("fewest-bytes", "laugier")),
    ],
)
def test_reports_of_all_grids_agree(tmp_path, plan, grids):
    reports = {}
    for grid in ("batch=1", *grids):
        path, outputs = tmp_path / "folder" / f"{grid}.json", tmp_path / f"{grid}.npy"
        ranks = math.prod(parse_grid(grid).values())
        finished = train(ranks, *SETTINGS, "--grid", grid, "--plan", plan, "--report", path, "--predictions", outputs)
        assert finished.status == 0, finished.stderr
        assert finished.stdout.count("epoch 2: mean loss") == 1
        reports[grid] = json.loads(path.read_text()) | {"outputs": np.load(outputs)}
    first = reports.pop("batch=1")
    assert first["P"] == 1 and first["bytes"] == {} and first["time"]["communicate"] == 0
    assert len(first["loss"]) == first["steps"] == 2 * 13 and first["final_loss"] == first["loss"][-1] < first["loss"][0]
    assert first["load"] is None or first["load"]["cores"] >= 1 and "verdict" in first["load"]
    assert first["versions"]["threads"] == 1 and len(first["params_digest"]) == 64 and first["peak_memory"] > 10**7
    assert first["outputs"].shape == (301, 1) and 100 < first["outputs"].mean() < 150  # dB
    for grid, report in reports.items():
        assert np.allclose(report["loss"], first["loss"], rtol=1e-10), grid
        assert report["test_mse"] == pytest.approx(first["test_mse"], rel=1e-9)
        assert np.allclose(report["outputs"], first["outputs"], rtol=1e-9)
        assert report["bytes"] and report["seconds_per_step"]["min"] <= report["seconds_per_step"]["median"]
        times = report["time"]
        assert all(value >= 0 for value in times.values()) and times["communicate"] > 0
        slowest = report["seconds_per_step"]
        least, most = slowest["min"] / report["P"], slowest["max"]  # a step of the mean rank takes no less and no more
        assert least * 0.999 <= sum(times.values()) <= most * 1.001, "the parts of a step sum to the step"


@pytest.mark.long
def test_the_same_run_twice_has_the_same_digest(tmp_path):
    digests = set()
    for run in "ab":
        finished = train(3, *SETTINGS[:-2], "--grid", "batch=3", "--report", tmp_path / run, "--quiet")
        assert (finished.status, finished.stdout, finished.stderr) == (0, "", "")
        digests.add(json.loads((tmp_path / run).read_text())["params_digest"])
    assert len(digests) == 1


@pytest.mark.long
@pytest.mark.parametrize("reader", ["scatter", "scatter-broadcast"])
def test_every_reader_trains_the_same(tmp_path, reader):
    losses = []
    for name in ("each", reader):
        finished = train(4, *SETTINGS, "--grid", "batch=2,model=2", "--reader", name, "--report", tmp_path / "r.json")
        assert finished.status == 0, finished.stderr
        losses.append(json.loads((tmp_path / "r.json").read_text())["loss"])
    assert losses[0] == losses[1]


def report_of(tmp_path, ranks, *arguments):
    finished = train(ranks, *arguments, "--quiet", "--report", tmp_path / "r.json")
    assert finished.status == 0, finished.stderr
    return json.loads((tmp_path / "r.json").read_text())


@pytest.mark.long
def test_every_reduction_trains_the_same(tmp_path):
    settings = [*SETTINGS, "--grid", "batch=2,model=2", "--validation", 0.2, "--patience", 3]
    expected = report_of(tmp_path, 4, *settings, "--reduction", "plain")
    ways = {
        "shared": [],
        "overlap:4": ["--update", "sharded", "--micro-batches", 3],
        "plain": ["--update", "sharded"],
    }
    for name, options in ways.items():
        found = report_of(tmp_path, 4, *settings, "--reduction", name, *options)
        assert found["reduction"] == name
        assert np.allclose(found["loss"], expected["loss"], rtol=1e-9), name
        assert np.allclose(found["validation"], expected["validation"], rtol=1e-9), name
        memory = found["memory"]
        assert 0 < memory["optimizer_state"] <= 0.6 * memory["optimizer_state_unsharded"]
        assert (found["overlap"] is not None) == (name == "overlap:4")
    assert expected["memory"]["optimizer_state"] == expected["memory"]["optimizer_state_unsharded"]
    halved = report_of(tmp_path, 4, *settings, "--reduction", "overlap:4", "--reduce-dtype", "float16")
    assert np.allclose(halved["loss"], expected["loss"], rtol=1e-2) and halved["loss"] != expected["loss"]


@pytest.mark.parametrize(
    ("optimizer", "lr", "dtype", "rtol"),
    [
        ("adam", 0.001, "float64", 1e-9),
        pytest.param("adam", 0.001, "float32", 1e-3, marks=pytest.mark.long),
        *(
            pytest.param(optimizer, lr, *numbers, marks=pytest.mark.long)
            for optimizer, lr in (("adamw", 0.001), ("adagrad", 0.01), ("adadelta", 1.0))
            for numbers in (("float64", 1e-9), ("float32", 1e-3))
        ),
    ],
)
def test_every_optimizer_trains_the_same_on_a_grid(tmp_path, optimizer, lr, dtype, rtol):
    settings = [*SETTINGS, "--dtype", dtype, "--optimizer", optimizer, "--l2", "1e-3"]
    serial = report_of(tmp_path, 1, *settings)
    parallel = report_of(tmp_path, 4, *settings, "--grid", "batch=2,model=2")
    assert serial["settings"]["lr"] == lr and serial["settings"]["momentum"] is None
    assert serial["final_loss"] < serial["loss"][0]
    assert np.allclose(parallel["loss"], serial["loss"], rtol=rtol)
    assert parallel["test_mse"] == pytest.approx(serial["test_mse"], rel=rtol)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_early_stopping_is_the_same_on_every_grid(small, tmp_path, dtype):  # noqa: F811
    """Labels that have nothing to do with the images: the more is learnt, the worse is the validation."""
    arguments = ["--dataset", "mnist", "--data-dir", small, "--net", "mlp:13,relu", "--batch-size", 5]
    arguments += ["--validation", 0.3, "--patience", 3, "--dtype", dtype]
    arguments += ["--optimizer", "adam", "--lr", 0.01, "--schedule", "constant"]
    first = None
    for grid, reader in (("batch=1", "each"), ("batch=2", "each"), ("model=3", "scatter"), ("batch=2,model=2", "each")):
        ranks = math.prod(parse_grid(grid).values())
        report = report_of(tmp_path, ranks, *arguments, "--grid", grid, "--reader", reader, "--epochs", 40)
        first = first or report
        assert report["stopped_epoch"] == len(report["validation"]) == report["best_epoch"] + 3 < 40
        assert report["steps"] == 3 * report["stopped_epoch"]  # 14 of the 20 samples are left to train on
        assert min(report["validation"]) == report["validation"][report["best_epoch"] - 1]
        for name in ("validation", "loss", "best_epoch", "stopped_epoch", "test_loss"):
            assert report[name] == pytest.approx(first[name], rel=1e-9 if dtype == "float64" else 1e-3), (grid, name)

    # The weights are those of the best epoch: a run that ends there is tested the same.
    again = report_of(tmp_path, 1, *arguments, "--steps", 3 * first["best_epoch"])
    assert again["params_digest"] == first["params_digest"] and again["stopped_epoch"] is None


@pytest.mark.long
def test_augmented_images_are_the_same_on_every_grid(small, tmp_path):  # noqa: F811
    arguments = ["--dataset", "mnist", "--data-dir", small, "--net", "mlp:13,relu", "--batch-size", 5, "--epochs", 3]
    arguments += ["--dtype", "float64", "--validation", 0.2]
    plain = report_of(tmp_path, 1, *arguments)["loss"]
    losses = [
        report_of(tmp_path, ranks, *arguments, "--augment", "shift=2,flip", "--grid", grid, "--reader", reader)["loss"]
        for ranks, grid, reader in ((1, "batch=1", "each"), (3, "model=3", "each"), (4, "batch=2,model=2", "scatter-broadcast"))
    ]
    assert not np.allclose(losses[0], plain, rtol=1e-6)
    for other in losses[1:]:
        assert np.allclose(other, losses[0], rtol=1e-10)


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """A folder of a few small images in two classes, of which one is brighter."""
    from PIL import Image

    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 5)):
        for label, name in enumerate(("dark", "light")):
            (folder / "flowers" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(90 * label, 160 + 90 * label, (14, 17, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / "flowers" / part / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def images(flowers):
    """Options of a training with a folder of images, augmented, with batch normalisation and early stopping."""
    arguments = ["--dataset", "images:flowers,size=13", "--data-dir", flowers, "--net", "resnet20", "--batch-size", 7]
    arguments += ["--augment", "shift=2,flip", "--dtype", "float64", "--lr", 0.01, "--schedule", "constant"]
    return [*arguments, "--validation", 0.3, "--patience", 2]


@pytest.fixture(scope="module")
def images_alone(images, tmp_path_factory):
    """The report of that training on one rank."""
    return report_of(tmp_path_factory.mktemp("images"), 1, *images, "--epochs", 4)


@pytest.mark.parametrize(
    ("ranks", "grid", "reader", "plan"),
    [
        (2, "height=2", "each", []),
        pytest.param(3, "height=3", "each", [], marks=pytest.mark.long),
        pytest.param(2, "model=2", "scatter", ["--plan", "conv=replicate,linear=out"], marks=pytest.mark.long),
        pytest.param(8, "batch=2,height=2,model=2", "scatter-broadcast", [], marks=pytest.mark.long),
    ],
)
def test_a_convolutional_network_trains_alike_on_every_grid(images, images_alone, tmp_path, ranks, grid, reader, plan):
    """On height shards and blocks of channels."""
    found = report_of(tmp_path, ranks, *images, "--epochs", 4, "--grid", grid, "--reader", reader, *plan)
    assert np.allclose(found["loss"], images_alone["loss"], rtol=1e-8)
    for name in ("validation", "best_epoch", "test_loss", "test_accuracy"):
        assert found[name] == pytest.approx(images_alone[name], rel=1e-8), name
    assert any(row["kind"] == "exchange" for row in found["communication"]) == ("height" in grid)


@pytest.mark.long
def test_weights_and_running_statistics_of_the_best_epoch_are_tested(images, images_alone, tmp_path):
    again = report_of(tmp_path, 1, *images, "--steps", math.ceil(17 / 7) * images_alone["best_epoch"])
    assert again["params_digest"] == images_alone["params_digest"]


def test_what_does_not_fit_images_is_refused(flowers):
    assert_refused(1, "train", [
        (["--net", "vgg16"], "net 'vgg16' on images of 13x13x3"),
        (["--net", "lenet5", "--grid", "height=1,model=1", "--plan", "height"], "has no height to split"),
        (["--net", "resnet20", "--grid", "height=1", "--plan", "width,out"], "2 choices but the net has"),
        (["--net", "lenet5", "--augment", ""], "augment"),
        (["--net", "lenet5,dropout=0.1"], "only nets that have dropout"),
        (["--net", "lenet5", "--device", "gpu"], "--device gpu"),
    ], ["--dataset", "images:flowers,size=13", "--data-dir", flowers, "--batch-size", 7])  # fmt: skip


def test_validation_alone_changes_nothing_but_the_samples(tmp_path):
    report = report_of(tmp_path, 2, *SETTINGS, "--validation", "0.1")
    assert len(report["validation"]) == 2 and report["stopped_epoch"] is None
    assert report["steps"] == 2 * math.ceil((1202 - 120) / 97)
    assert not {row["layer"] for row in report["communication"]} - {"gradients", "loss"}, "evaluations are not counted"


@pytest.mark.parametrize(
    "options",
    [
        ["--nesterov"],
        ["--schedule", "step:5:0.5,warmup:3"],
        ["--clip-norm", "0.05", "--net", "mlp:11,31,gelu"],
        pytest.param(["--l1", "1e-3", "--l2", "1e-3"], marks=pytest.mark.long),
        pytest.param(["--momentum", "0"], marks=pytest.mark.long),
    ],
)
def test_options_of_the_optimizer_train(tmp_path, options):
    """Each changes the training, which goes on learning, and changes it alike on one rank and on two."""
    runs = (1, []), (1, options), (2, options)
    plain, alone, found = (report_of(tmp_path, ranks, *SETTINGS, *more) for ranks, more in runs)
    assert found["final_loss"] < found["loss"][0]
    assert np.allclose(found["loss"], alone["loss"], rtol=1e-9)
    assert not np.allclose(found["loss"], plain["loss"], rtol=1e-6)


TOGETHER = [  # what the ranks find out in different ways
    (["--lr", "1e30", "--net", "mlp:8,8,relu"], "the loss is"),
    (["--net", "mlp:100000000000,relu"], "at most 4194304"),
    (["--report", "/proc/no/report.json"], "can not write to /proc/no"),
    (["--dataset", "ethylene", "--data-dir", "/dev/null/nowhere"], "no file /dev/null/nowhere/ethylene/ethylene.zip"),
    (["--grid", "batch=2,model=2"], "has 4 places but the number of ranks is 3"),
]
BAD = [  # what each of them finds out alone
    (["--grid", "rows=3"], "grid 'rows=3'"),
    (["--grid", "batch=-3"], "whole number of at least 1"),
    (["--dataset", "cifar"], "unknown data set 'cifar': did you mean cifar10"),
    (["--net", "resnet9000"], "unknown net 'resnet9000'"),
    (["--net", "mlp:64,-1,relu"], "every width must be at least 1"),
    (["--net", "mlp:64,swish"], "neither a number nor an activation"),
    (["--plan", "diagonal"], "unknown choice 'diagonal'"),
    (["--plan", "out,in"], "2 choices but the net has 3"),
    (["--reduction", "ring"], "there is no reduction 'ring': use plain, overlap, overlap:KIB"),
    (["--reduction", "overlap:0"], "there is no reduction 'overlap:0'"),
    (["--reduction", "shared", "--reduce-dtype", "float16"], "gradients in shared memory are not sent in float16"),
    (["--update", "half"], "invalid choice: 'half'"),
    (["--micro-batches", "0"], "must be a whole number of at least 1"),
    (["--batch-size", "-8"], "whole number of at least 1, not '-8'"),
    (["--batch-size", "0"], "whole number of at least 1"),
    (["--batch-size", "5000"], "larger than the data: 1202"),
    (["--epochs", "0"], "whole number of at least 1"),
    (["--steps", "ten"], "whole number of at least 1, not 'ten'"),
    (["--steps", "3", "--epochs", "2"], "not allowed with"),
    (["--lr", "-1"], "must be a number above 0"),
    (["--lr", "nan"], "must be a number above 0"),
    (["--momentum", "1"], "at least 0 and below 1"),
    (["--momentum", "0", "--nesterov"], "nesterov needs a momentum"),
    (["--optimizer", "newton"], "invalid choice"),
    (["--weight-decay", "0.1"], "--weight-decay is no option of sgd"),
    (["--clip-norm", "0"], "must be a number above 0"),
    (["--clip-norm", "1", "--protocol", "server:bsp"], "which servers never have: use another --protocol"),
    (["--label-smoothing", "0.1"], "--label-smoothing is for classes, and airfoil has values"),
    (["--optimizer", "adam", "--momentum", "0.9"], "--momentum is no option of adam"),
    (["--optimizer", "adagrad", "--nesterov"], "--nesterov is no option of adagrad"),
    (["--validation", "1"], "must be a number above 0 and below 1, not '1'"),
    (["--validation", "0"], "must be a number above 0 and below 1, not '0'"),
    (["--validation", "1e-4"], "--validation 0.0001 of 1202 training samples would be 0"),
    (["--validation", "0.95"], "larger than the data: 60 training samples"),
    (["--augment", "flip"], "--augment is for images"),
    (["--augment", "rotate=9"], "augment 'rotate=9': 'rotate=9' is unknown"),
    (["--patience", "3"], "--patience needs --validation"),
    (["--patience", "0", "--validation", "0.1"], "whole number of at least 1, not '0'"),
    (["--schedule", "linear"], "unknown schedule 'linear'"),
    (["--seed", "-1"], "whole number of at least 0"),
    (["--seed", "18446744073709551616"], "at most 9223372036854775807"),
    (["--net", "mlp:relu,dropout=2"], "Dropout: p must be"),
    (["--schedule", "step:1:-1"], "factor above 0"),
    (["--report", "/tmp/same.npy", "--predictions", "/tmp/same.npy"], "are the same file"),
    (["--report", "/dev/null"], "no ordinary file"),
    (["--report", ""], "--report is empty: give the name of a file"),
    (["--trace", ""], "--trace is empty: give the name of a file"),
    (["--lr", "1e30", "--steps", "1", "--net", "mlp:8,8,relu"], "not finite"),
    (["--protocol", "gossip"], "there is no protocol 'gossip': use sync, local,"),
    (["--protocol", "server:ssp"], "protocol server:ssp: write server:ssp:S"),
    (["--protocol", "local:0"], "protocol local:0: period must be a whole number of at least 1, not '0'"),
    (["--protocol", "server:asp:twice"], "'twice' is not one of single, round-robin, greedy"),
    (["--protocol", "local:2", "--validation", "0.1"], "--validation needs one network"),
    (["--protocol", "local:2", "--grid", "auto"], "--protocol trains workers apart: name the grid"),
    (["--protocol", "local:2", "--rebalance", "5"], "leave --rebalance out"),
    (["--simulate", "ethernet-1g"], "--simulate is gone: gridgrad explain --machine NAME predicts a step"),
    (["--simulate=ethernet-1g"], "--simulate is gone: gridgrad explain"),
    (["--protocol", "local:2", "--reader", "scatter"], "workers have their own: use each"),
    (["--protocol", "local:2", "--grid", "stage=1", "--pipeline", "async:2"], "use a synchronous --pipeline"),
    (["--protocol", "parallel-sgd:shuffle", "--augment", "flip"], "leave one of them out"),
    (["--protocol", "parallel-sgd:exchange", "--augment", "flip"], "leave one of them out"),
    (["--dtype", "float16"], "invalid choice"),
    (["--reader", "pigeon"], "invalid choice"),
    (["--depth", "3"], "unrecognized arguments"),
    (["--report", "/"], "can not write to /: it is no ordinary file"),
    (["--predictions", "/dev/null/x.npy"], "can not write to /dev/null"),
]


@pytest.mark.parametrize(
    ("ranks", "arguments", "message"),
    [
        pytest.param(ranks, *case, id=" ".join(case[0]), marks=pytest.mark.long if number >= 1 else ())
        for ranks, cases in ((3, TOGETHER), (1, BAD[:1]))
        for number, case in enumerate(cases)
    ],
)
def test_bad_input_ends_with_one_line_and_status_2(ranks, arguments, message):
    finished = train(ranks, "--grid", f"batch={ranks}", *with_defaults(arguments), timeout=60)
    assert finished.status == 2, finished.stderr
    lines = [line for line in finished.stderr.splitlines() if line.startswith("train: error: ")]
    assert len(lines) == 1 and message in lines[0], finished.stderr
    assert "Traceback" not in finished.stderr and finished.stdout == ""


def with_defaults(arguments):
    default = [] if any(a in ("--steps", "--epochs") for a in arguments) else ["--steps", "9"]
    default += [] if "--net" in arguments else ["--net", "mlp:8,8,relu"]
    return [*default, "--quiet", *arguments]


def test_bad_input_is_refused_alike_on_every_rank():
    assert_refused(3, "train", [(with_defaults(arguments), message) for arguments, message in BAD], ["--grid", "batch=3"])


def test_divergence_names_step_and_layer():
    finished = train(2, "--lr", "1e30", "--net", "mlp:8,8,relu", "--steps", "20", "--grid", "model=2", "--quiet")
    assert finished.status == 2
    assert "train: error: step " in finished.stderr and "first not finite: " in finished.stderr


@pytest.mark.parametrize(
    "damage",
    [
        gzip.compress(b"x" * 99, mtime=0)[:-9],
        *(
            pytest.param(damage, marks=pytest.mark.long)
            for damage in (b"", b"\0\0\x08\x01\0\0\0\x0a123", b"\0\0\x0d\x01\0\0\0\x0a0123456789")
        ),
    ],
)
def test_a_damaged_data_file_ends_every_rank(small, damage):  # noqa: F811
    zipped = damage[:1] == b"\x1f"
    name = "train-images-idx3-ubyte.gz" if zipped else "t10k-labels-idx1-ubyte"
    (small / "mnist" / name).write_bytes(damage)
    finished = train(3, "--dataset", "mnist", "--data-dir", small, "--batch-size", 5, "--quiet")
    assert finished.status == 2
    assert finished.stderr.count("train: error: ") == 1 and name in finished.stderr


def test_help_is_complete_and_printed_once():
    finished = train(2, "--help", "all")
    assert finished.status == 0
    assert finished.stdout.count("usage: gridgrad train") == 1
    of_option = re.split(r"^  (?=-)", finished.stdout, flags=re.MULTILINE)[1:]
    assert [text for text in of_option if text.count("(default:") > 1 or "None" in text] == []
    for action in options_of_train()._actions:
        assert action.help, f"{action.option_strings} has no help"
        assert all(name in finished.stdout for name in action.option_strings)


def test_runs_serially_without_mpiexec(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-m", "gridgrad", "train", "--steps", "7", "--report", tmp_path / "r.json"],
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""  # no progress bar where the output is not a terminal
    assert json.loads((tmp_path / "r.json").read_text())["P"] == 1


@pytest.fixture(scope="module")
def accuracies():
    return {}


@pytest.mark.parametrize(
    "grid",
    ["batch=1,model=1", "batch=2,model=1", *(pytest.param(f"batch={b},model=2", marks=pytest.mark.long) for b in (1, 2))],
)
def test_mnist_reaches_98_percent_on_every_grid(grid, tmp_path, accuracies):
    """Ten epochs with default settings; all grids within 0.1 points of each other."""
    directory = datasets.data_directory()
    if not all(mnist.locate(directory, name) for name in mnist.FILES):
        pytest.skip(f"no MNIST in {directory}: set GRIDGRAD_DATA to a folder that has it")
    ranks = math.prod(parse_grid(grid).values())
    arguments = ["--dataset", "mnist", "--net", "mlp:512,relu", "--grid", grid, "--report", tmp_path / "r.json"]
    finished = train(ranks, *arguments, timeout=500)
    assert finished.status == 0, finished.stderr
    accuracies[grid] = json.loads((tmp_path / "r.json").read_text())["test_accuracy"]
    assert accuracies[grid] >= 98
    assert max(accuracies.values()) - min(accuracies.values()) <= 0.1, accuracies


def test_the_short_help_has_what_most_people_need():
    finished = train(1, "--help")
    shown = re.findall(r"^  (--[a-z-]+|-h, --help)", finished.stdout, re.MULTILINE)
    assert sorted(shown) == sorted(["-h, --help", *(f"--{name.replace('_', '-')}" for name in SHORT)])
    assert len(finished.stdout.splitlines()) < 45 and "--help all has all" in finished.stdout
    refused = train(1, "--help", "everything")
    assert refused.status == 2 and "--help everything: there are --help and --help all" in refused.stderr


def test_what_can_not_be_meant_is_refused():
    assert_refused(2, "train", [
        (["--pipeline", "1f1b"], "--pipeline 1f1b is for a grid with stages: add stage=2 to --grid"),
        (["--micro-batches", "10"], "--micro-batches 10 are more than the 9 samples of --batch-size"),
        (["--grid", "height=2"], "the axis height splits images, but the network takes none"),
        (["--trace-steps", "4"], "--trace-steps needs --trace FILE.json"),
        (["--keep", "2"], "--keep needs --checkpoint DIR"),
        (["--checkpoint-steps", "2"], "--checkpoint-steps needs --checkpoint DIR"),
        (["--checkpoint-minutes", "2"], "--checkpoint-minutes needs --checkpoint DIR"),
        (["--resume", "nowhere", "--data-dir", "nowhere", "--dataset", "mnist"], "nowhere has no whole checkpoint"),
        (["--nesterov", "--momentum", "0"], "nesterov needs a momentum above 0"),
    ], ["--quiet", "--steps", "1", "--net", "mlp:4,relu", "--batch-size", "9", "--grid", "batch=2"])  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "arguments", "note"),
    [
        (1, ["--protocol", "server:asp"], "--protocol server:asp has one worker, because the axis batch has one rank"),
        (1, ["--shares", "auto", "--watchdog", "60"], "--shares, --watchdog: of no effect on one rank"),
        (
            3,
            ["--grid", "batch=3", "--batch-size", "2"],
            "1 of the 3 ranks along the axis batch have no sample of the 2 in a minibatch",
        ),
        (2, ["--plan", "out"], "--plan out changes nothing: it places weights along the axis model"),
        (2, ["--grid", "model=2", "--plan", "out"], None),
    ],
)
def test_what_is_odd_is_noted_once(ranks, arguments, note):
    finished = train(ranks, "--net", "mlp:4,relu", "--steps", 1, *arguments)
    assert finished.status == 0, finished.stderr
    notes = [line for line in finished.stdout.splitlines() if line.startswith("note: ")]
    notes = [line for line in notes if "note: while steps were timed" not in line]  # the machine may be busy
    assert len(notes) == (note is not None) and all(note in line for line in notes)
