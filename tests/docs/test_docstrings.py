"""Plain docstrings become reStructuredText that means the same: names in bold, code as literals, nothing else marked up."""

from docs.plain_docstrings import converted

TEXT = """Move an array `a -> b`; see `Shard`s and f(*x, a_b).

rank: of |this| one. sizes: {axis: number}, such as `{"a": 1}`,
on two lines. Raises: nothing of this name.
strange_name: begins a line.

1. is no list.

- one
  and more
- two

| a | b |
|---|---|
| `x` | 2 * 3 |

    example(1)
"""


def test_paragraphs_arguments_tables_and_examples():
    assert converted(TEXT, {"rank", "sizes"}) == [
        "Move an array ``a -> b``; see ``Shard``\\ s and f(\\*x, a\\_b).",
        "",
        "* **rank**: of \\|this\\| one.",
        '* **sizes**: {axis: number}, such as ``{"a": 1}``, on two lines. Raises: nothing of this name.',
        "* **strange\\_name**: begins a line.",
        "",
        "\\1. is no list.",
        "",
        "* one and more",
        "* two",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - a",
        "     - b",
        "   * - ``x``",
        "     - 2 \\* 3",
        "",
        "::",
        "",
        "    example(1)",
        "",
    ]


SECTIONS = """Move arrays.

Parameters
----------
x, *more : array (n, features)
    The first ones: `x` and
    others.
rank

Examples
--------
Add:

>>> 1 + 1
2
"""


def test_sections_become_fields():
    assert converted(SECTIONS) == [
        "Move arrays.",
        "",
        ":Parameters:",
        "    **x, \\*more** : array (n, features)",
        "        The first ones: ``x`` and others.",
        "",
        "    **rank**",
        "",
        ":Examples:",
        "    Add:",
        "",
        "    >>> 1 + 1",
        "    2",
        "",
    ]
