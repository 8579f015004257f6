"""Tables as Markdown."""


def table(title, rows):
    """A title and a table, or nothing if there are no rows. rows: dicts with the same keys, which are the column headings."""
    if not rows:
        return ""
    heads = list(rows[0])
    lines = [f"\n{title}\n", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cell(row[head]) for head in heads)} |" for row in rows)]) + "\n"


def cell(value):
    """A value as text; numbers with four digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
