"""Tables as Markdown."""


def cell(value):
    """A value as text; numbers with four digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def table(title, rows):
    """A title and a table, or nothing if there are no rows. rows: dicts with the same keys, which are the column headings."""
    return f"\n{title}\n\n{lines(rows)}\n" if rows else ""


def lines(rows, text=cell):
    """The lines of a table without a title. text: a function that makes the text of a value."""
    heads = list(rows[0])
    rule = f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"
    return "\n".join([rule, *(f"| {' | '.join(text(row[head]) for head in heads)} |" for row in rows)])
