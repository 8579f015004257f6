"""Lines of anything: columns of tables (.csv, .tsv) and entries of reports (.json, .jsonl) over one another.

An entry of a report is named by its path, such as `seconds.median`. Lists of entries become rows, which also have what stands
around them: of `{"net": "lenet5", "ways": [{"way": "batch", "history": [{"epoch": 1, "loss": 2.3}]}]}` a row has `net`, `way`,
`epoch` and `loss`. Numbers in a list have an `index`. The runs of a sweep have the columns of `gridgrad sweep --csv`, such as
`ranks` and `peak_memory_bytes`.
"""

from io import BytesIO
from itertools import product
from pathlib import Path

from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.plots.panels import Panel, Series
from gridgrad.experiments.plots.panels import draw as draw_panels
from gridgrad.experiments.scaling import records, tidy
from gridgrad.nn.files.documents import content_of_file, contents_of_lines, is_number
from gridgrad.nn.files.limits import read_limited

MOST_PANELS = 36


def read(paths):
    """The rows of files as a DataFrame, with the name of the file in the column `file`."""
    import pandas

    found = []
    for path in dict.fromkeys(map(str, paths)):
        if not Path(path).exists():
            raise ValueError(f"there is no file {path}: name tables or reports")
        separator = {".csv": ",", ".tsv": "\t"}.get(Path(path).suffix.lower())
        try:
            if separator:
                table = pandas.read_csv(BytesIO(read_limited(path)), sep=separator, skipinitialspace=True)
            else:
                is_jsonl = Path(path).suffix.lower() == ".jsonl"
                content = [one for _, one in contents_of_lines(path)] if is_jsonl else content_of_file(path)
                is_sweep = is_jsonl and content and isinstance(content[0], dict) and {"net", "P", "grid"} <= content[0].keys()
                table = table_of_sweep(records.read(path)) if is_sweep else pandas.DataFrame(flat(content, {}))
        except ValueError as error:  # pandas, too, raises nothing else for what is no table
            raise ValueError(f"{path} is no table or report that can be drawn: {str(error).splitlines()[0]}") from None
        if table.empty:
            raise ValueError(f"{path} has no rows")
        found.append(table.assign(file=Path(path).stem))
    return pandas.concat(found, ignore_index=True)


def table_of_sweep(found):
    """The DataFrame of some records of a sweep."""
    import pandas

    table = pandas.DataFrame(tidy.table(found))
    return table.assign(samples_a_second=table.batch_size_samples / table.step_s) if len(table) else table


def flat(value, around):
    """Yield the rows of a document. around: what stands around the value, {path: number, text or truth}."""
    if isinstance(value, list):
        for one in value:
            yield from flat(one, around)
    elif isinstance(value, dict):
        here, lists = dict(around), []
        split(value, "", here, lists)
        if not lists:
            yield here
        for one in lists:
            yield from flat(one, here)


def split(entries, before, here, lists):
    """Put the plain entries of a dict into `here`, those of its dicts by their paths, and its lists of dicts into `lists`."""
    for name, value in entries.items():
        if isinstance(value, dict):
            split(value, f"{before}{name}.", here, lists)
        elif isinstance(value, list):
            if any(isinstance(one, dict) for one in value):
                lists.append(value)
            elif value and all(map(is_number, value)):
                lists.append([{f"{before}{name}": one, "index": number} for number, one in enumerate(value)])
        else:
            here[f"{before}{name}"] = value


def chosen(table, where):
    """The rows in which columns have some values. where: {column: text of the value}."""
    for name, value in where.items():
        check_columns(table, [name])
        cells = table[name].map(lambda cell: f"{cell:g}" if isinstance(cell, float) else str(cell).lower())
        if not (alike := cells == value.lower()).any():
            raise ValueError(f"no row has {name}={value}: there are {', '.join(map(str, dict.fromkeys(cells[:1000])))}")
        table = table[alike]
    return table


def check_columns(table, names):
    for name in names:
        if name not in table:
            raise ValueError(f"there is no column {name}: there are {', '.join(map(str, table.columns))}")


def draw(table, x, ys, series=(), panel=None, log="", bars=(), labels=(), only=None, look=looks.FITTING):
    """A figure of columns of a DataFrame: of rows of a line with the same x the median, with a bar over all of them. series,
    panel: the columns that tell lines, and panels, apart. bars: those of the ends of bars. log: "x", "y", "x,y" or empty."""
    import pandas

    check_columns(table, [x, *ys, *series, *bars, *([panel] if panel else [])])
    table = table.dropna(subset=[x]).dropna(subset=ys, how="all")
    for name in (*ys, *bars):
        table = table.assign(**{name: pandas.to_numeric(table[name], errors="coerce")})
    for name in [x] * ("x" in log) + list(ys) * ("y" in log):
        if not pandas.api.types.is_numeric_dtype(table[name]):
            raise ValueError(f"{name} has no logarithm: it is no number")
        table = table[~(table[name] <= 0)]
    if table[ys].isna().all(axis=None):
        raise ValueError(f"no row has a number for {' or '.join(ys)} beside {x}")
    panels = list(table.groupby(panel, sort=False)) if panel else [("", table)]
    if not 0 < len(panels) <= MOST_PANELS:
        raise ValueError(f"the column {panel} has {len(panels)} values, and a figure 1 to {MOST_PANELS} panels")
    values = table[list(series)].astype(str).drop_duplicates().values.tolist() if series else [[]]
    # {(value of each column of series, .., y): the name of the line}; the only line of a table has an empty one
    names = {(*value, y): ", ".join([*value, *([y] if len(ys) > 1 else [])]) for value, y in product(values, ys)}
    if only and (unknown := set(only) - set(names.values())):
        raise ValueError(f"--only: there is no {' and no '.join(sorted(unknown))}: there are {'; '.join(names.values())}")
    found = []
    for title, rows in panels:
        cells, shown = rows[list(series)].astype(str), []
        for (*value, y), name in names.items():
            if not only or name in only:
                low, high = bars or (y, y)  # the columns of the ends of bars
                mine = rows[(cells == value).all(axis=1)].dropna(subset=[y])
                of_x = mine.groupby(x, sort=mine[x].dtype.kind in "biuf")  # texts stay in their order
                middle, ends = of_x[y].median(), (of_x[low].min(), of_x[high].max())
                shown.append(Series(name, list(middle.index), list(middle), *map(list, ends)))
        found.append(Panel((f"{panel}: {title}",) if panel else (), shown))
    return draw_panels(found, labels or (x, "\n".join(ys)), look, log=log)
