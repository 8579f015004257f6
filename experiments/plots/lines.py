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
                table = pandas.DataFrame(rows_of_report(path))
        except ValueError as error:  # pandas, too, raises nothing else for what is no table
            raise ValueError(f"{path} is no table or report that can be drawn: {str(error).splitlines()[0]}") from None
        if table.empty:
            raise ValueError(f"{path} has no rows")
        found.append(table.assign(file=Path(path).stem))
    return pandas.concat(found, ignore_index=True)


def rows_of_report(path):
    """The rows of a .json or .jsonl file; of a sweep those of its tidy table."""
    if Path(path).suffix.lower() != ".jsonl":
        return list(flat(content_of_file(path), {}))
    content = [one for _, one in contents_of_lines(path)]
    is_sweep = bool(content) and isinstance(content[0], dict) and {"net", "P", "grid"} <= content[0].keys()
    return table_of_sweep(records.read(path)) if is_sweep else list(flat(content, {}))


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
    """A figure of columns of a DataFrame: of rows of a line with the same x the median, with a bar over all of them.

    series, panel: the columns that tell lines, and panels, apart. log: "x", "y", "x,y" or empty. bars: the columns of the ends
    of bars. labels: of the axes. only: the names of the lines that are drawn. ValueError for what can not be drawn.
    """
    import pandas

    check_columns(table, [x, *ys, *series, *bars, *([panel] if panel else [])])
    table = table.dropna(subset=[x]).dropna(subset=ys, how="all")
    for name in (*ys, *bars):
        table = table.assign(**{name: pandas.to_numeric(table[name], errors="coerce")})
    if log:
        for name in [x] * ("x" in log) + list(ys) * ("y" in log):
            if not pandas.api.types.is_numeric_dtype(table[name]):
                raise ValueError(f"{name} has no logarithm: it is no number")
            table = table[~(table[name] <= 0)]
    if table[ys].isna().all(axis=None):
        raise ValueError(f"no row has a number for {' or '.join(ys)} beside {x}")
    panels = list(table.groupby(panel, sort=False)) if panel else [("", table)]
    if not 0 < len(panels) <= MOST_PANELS:
        raise ValueError(f"the column {panel} has {len(panels)} values, and a figure 1 to {MOST_PANELS} panels")
    figure, axes_of = looks.panels_of(len(panels), look.width)
    names = names_of(table, ys, series)
    if only and (unknown := set(only) - set(names.values())):
        raise ValueError(f"--only: there is no {' and no '.join(sorted(unknown))}: there are {'; '.join(names.values())}")
    styles = looks.styles(name for name in names.values() if not only or name in only)
    for axes, (title, rows) in zip(axes_of, panels):
        values = []
        for (*value, y), name in names.items():
            if name in styles:
                mine = rows[(rows[list(series)].astype(str) == value).all(axis=1)] if series else rows
                values += draw_line(axes, mine.dropna(subset=[y]), x, y, bars, styles[name])
        fit(axes, rows[x], values, log)
        looks.label(axes, *labels or (x, "\n".join(ys)), f"{panel}: {title}" if panel else "")
    marks = [(looks.mark(color=one.colour, marker=one.marker), name) for name, one in styles.items()]
    return looks.finish(figure, look, marks if len(names) > 1 else ())


def names_of(table, ys, series):
    """{(value of each column of series, .., y): the name of the line}."""
    values = table[list(series)].astype(str).drop_duplicates().values.tolist() if series else [[]]
    return {(*value, y): ", ".join([*value, *([y] if len(ys) > 1 or not value else [])]) for value, y in product(values, ys)}


def draw_line(axes, rows, x, y, bars, style):
    """A line with its points and bars; returns the values that must fit."""
    if rows.empty:
        return []
    found = rows.groupby(x, sort=not isinstance(rows[x].iloc[0], str))
    middle, least, most = found[y].median(), found[bars[0] if bars else y].min(), found[bars[1] if bars else y].max()
    looks.draw_ranges(axes, middle.index, middle, least, most, color=style.colour, marker=style.marker, ms=4, lw=1.1,
                      elinewidth=0.9, capsize=2 if (least < most).any() else 0)  # fmt: skip
    return [*middle, *least.dropna(), *most.dropna()]


def fit(axes, x, values, log):
    """The axes around what is drawn."""
    if "x" in log:
        looks.ranks_axis(axes, list(x)) if x.nunique() <= 20 else axes.set_xscale("log")
    if not values:
        return
    if "y" in log:
        looks.log_axis(axes, values)
    elif min(values) >= 0 and min(values) < 0.5 * max(values):
        axes.set_ylim(0, 1.08 * max(values))
