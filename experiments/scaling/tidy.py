"""The runs of a study as a tidy table, for pandas, R or a spreadsheet: a row a point of a curve and repeat, units in the names.

Where a run says nothing the cell is empty. Behind the columns that all tables have stands one for each other option of a run,
such as `lr` or `rate_mbit_per_s`. A step is the median of a run, its parts are means over the steps.
"""

from collections import defaultdict

from gridgrad.experiments.common.report import PARTS
from gridgrad.experiments.scaling.records import baseline_of, is_busy, metric_of, seconds_of, value_of
from gridgrad.experiments.scaling.study import OF_TRAIN
from gridgrad.experiments.scaling.summary import baseline_at, calls_of, origin_of
from gridgrad.parallel.job.run import printable

VARIED = ("pipeline", "micro_batches", "protocol", "optimizer", "update", "shares", "threads", "hosts")
UNITS = {"rate": "rate_mbit_per_s", "delay": "delay_us", "memory": "memory_gib", "watchdog": "watchdog_s"}


def table(records):
    """Rows, dicts with the same keys, of some records."""
    others, baselines = others_of(records), defaultdict(lambda: defaultdict(dict))
    for record in records:
        for network, series, scaling in record["curves"]:
            if not record.get("failed"):
                values = baselines[origin_of(record), network, series, scaling][record["P"]]
                values[record["repeat"]] = value_of(record, metric_of(record))
    return [row_of(record, *curve, baselines) | {UNITS.get(name, name): cells[number] for name, cells in others.items()}
            for number, record in enumerate(records) for curve in record["curves"]]  # fmt: skip


def others_of(records):
    """{option that has no column else: its value in each record or None}, sorted; numbers, truths or, where mixed, texts."""
    names = {name for record in records for name, value in record["point"].items() if value is not None}
    found = {}
    for name in sorted(names - {*OF_TRAIN, *VARIED, "net", "grid"}):
        cells = [record["point"].get(name) for record in records]
        kinds = {"number" if type(cell) in (int, float) else type(cell) for cell in cells if cell is not None}
        found[name] = cells if len(kinds) == 1 else [cell if cell is None else str(cell) for cell in cells]
    return found


def row_of(record, network, series, scaling, baselines):
    """The row of a record in one of its curves. baselines: {where and series: {ranks: {repeat: value}}}."""
    point, times, environment = record["point"], record.get("time") or {}, record["environment"]
    load, sent, seconds = record.get("load") or {}, record.get("bytes"), record.get("seconds_per_step") or {}
    core, value = record.get("core") or {}, value_of(record, metric_of(record))
    of_baseline = baselines[origin_of(record), network, baseline_of(record, series), scaling]
    base = (baseline_at(of_baseline, record["P"]) or {}).get(record["repeat"])
    batch = (record.get("settings") or {}).get("batch_size") or point.get("batch_size")
    return {
        "network": network, "series": series, "scaling": scaling, "dataset": record.get("dataset"), "net": record["net"],
        "grid": record["grid"], "ranks": record["P"], "batch_size_samples": batch, "repeat": record["repeat"],
        "predicted": bool(record.get("predicted")), "failed": record.get("failed"), "busy": is_busy(record),
        "oversubscribed": record.get("oversubscribed"), "step_s": seconds_of(record), "step_min_s": seconds.get("min"),
        "step_max_s": seconds.get("max"), **{f"{part}_s": times.get(part) for part in PARTS},
        "sent_by_all_ranks_bytes": None if sent is None else sum(sent.values()), "calls_of_a_rank": calls_of(record),
        "peak_memory_bytes": record.get("peak_memory"), "flops_a_sample": record.get("flops_a_sample"),
        "others_cores": load.get("others"), "reference_product_s": core.get("reference_seconds"),
        "step_reference_products": core.get("reference_products_per_step"), "took_s": record.get("took"),
        "final_loss": record.get("final_loss"), "test_accuracy_percent": record.get("test_accuracy"),
        "ratio_to_baseline": value / base if value is not None and base else None, "turns": bool(record.get("turns")),
        **{name: point.get(name) for name in (*OF_TRAIN, *VARIED) if name not in ("dataset", "data_dir", "batch_size")},
        "seed": record.get("seed", point.get("seed")),
        **{name: environment.get(name) for name in ("processor", "cores", "mpi", "blas", "host", "commit", "code")},
    }  # fmt: skip


def text(records):
    """The table as CSV."""
    import pandas  # which takes long to import

    rows = [{name: harmless(value) for name, value in row.items()} for row in table(records)]
    return pandas.DataFrame(rows or {"network": []}, dtype=object).to_csv(index=False, lineterminator="\n")


def harmless(value):
    """A cell that no spreadsheet runs as a formula, and no terminal obeys."""
    if not isinstance(value, str):
        return value
    return "'" * value.startswith(("=", "+", "-", "@")) + printable(value)
