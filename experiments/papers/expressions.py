"""Expressions in the file of a paper: arithmetic, comparisons, comprehensions, named functions; and texts with them in braces.

They are read by `ast` and computed node by node: what is not in the tables below can not run. `maybe(a, b)` is b where
something that a asks for is missing.
"""

import ast
import operator

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
MAYBE = "maybe"


class MissingError(LookupError):
    """Something that an expression asks for is not there; the message says why, a sentence without its stop."""


class Expression:
    """An expression, or with `is_text` a text with expressions in braces. where: whose it is, for errors. ValueError for what
    can not be read, or may not run."""

    def __init__(self, text, where, is_text=False):
        self.where = where
        try:
            self.root = ast.parse(quoted(text) if is_text else text.strip(), mode="eval").body
            for node in ast.walk(self.root):
                check(node)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from None

    def __call__(self, names):
        """Its value. names: {name: a value, or a function that may be called}. MissingError; ValueError where it fails."""
        try:
            return value(self.root, names)
        except MissingError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            raise ValueError(f"{self.where}: {kind}{error}") from error


def quoted(text):
    """A text as an f-string, which before Python 3.12 has no backslashes and no quotes of its own kind in its braces."""
    quotes = '"' * 3 if text.endswith("'") else "'" * 3
    if quotes in text:
        raise ValueError(f"a text has no {quotes}")
    return f"f{quotes}{text.replace(chr(92), chr(92) * 2)}{quotes}"


def check(node):
    """Raise ValueError for a node that may not run."""
    kind = type(node)
    if not (kind in OPERATORS or kind in NODES or kind in ALLOWED):
        raise ValueError(f"an expression has no {kind.__name__}")
    if kind is ast.Call and not isinstance(node.func, ast.Name):
        raise ValueError("only named functions can be called")
    if kind is ast.Constant and not isinstance(node.value, int | float | str | None):
        raise ValueError(f"an expression has no {type(node.value).__name__}")
    if kind is ast.comprehension and node.is_async:
        raise ValueError("an expression has no async")


def value(node, names):
    """The value of a node."""
    return NODES[type(node)](node, names)


def name(node, names):
    if node.id not in names:
        raise ValueError(f"there is no '{node.id}'")
    return names[node.id]


def binary(node, names):
    return OPERATORS[type(node.op)](value(node.left, names), value(node.right, names))


def logical(node, names):
    """The first operand that decides, as in Python."""
    decisive = isinstance(node.op, ast.Or)
    for operand in node.values:
        found = value(operand, names)
        if bool(found) == decisive:
            break
    return found


def comparison(node, names):
    left = value(node.left, names)
    for kind, operand in zip(node.ops, node.comparators):
        right = value(operand, names)
        if not OPERATORS[type(kind)](left, right):
            return False
        left = right
    return True


def call(node, names):
    if node.func.id == MAYBE:
        try:
            return value(node.args[0], names)
        except MissingError:
            return value(node.args[1], names) if len(node.args) > 1 else None
    arguments = []
    for argument in node.args:
        found = value(argument.value if isinstance(argument, ast.Starred) else argument, names)
        arguments += found if isinstance(argument, ast.Starred) else [found]
    return name(node.func, names)(*arguments, **{one.arg: value(one.value, names) for one in node.keywords})


def comprehension(node, names, generators=None):
    """The elements of a comprehension, a list."""
    first, *others = node.generators if generators is None else generators
    found = []
    for item in value(first.iter, names):
        inner = {**names, **bound(first.target, item)}
        if all(value(condition, inner) for condition in first.ifs):
            found += comprehension(node, inner, others) if others else [value(node.elt, inner)]
    return found


def dict_comprehension(node, names):
    pair = ast.ListComp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)
    return dict(comprehension(pair, names))


def bound(target, item):
    """{name: value} of the names on the left of `in`."""
    if isinstance(target, ast.Name):
        return {target.id: item}
    return {key: one for part, whole in zip(target.elts, item, strict=True) for key, one in bound(part, whole).items()}


def formatted(node, names):
    found = value(node.value, names)
    return format(found, value(node.format_spec, names) if node.format_spec else "")


NODES = {
    ast.Constant: lambda node, names: node.value,
    ast.Name: name,
    ast.Tuple: lambda node, names: tuple(value(one, names) for one in node.elts),
    ast.List: lambda node, names: [value(one, names) for one in node.elts],
    ast.Dict: lambda node, names: {value(key, names): value(one, names) for key, one in zip(node.keys, node.values)},
    ast.UnaryOp: lambda node, names: OPERATORS[type(node.op)](value(node.operand, names)),
    ast.BinOp: binary, ast.BoolOp: logical, ast.Compare: comparison, ast.Call: call,
    ast.IfExp: lambda node, names: value(node.body if value(node.test, names) else node.orelse, names),
    ast.Subscript: lambda node, names: value(node.value, names)[value(node.slice, names)],
    ast.DictComp: dict_comprehension,
    ast.Slice: lambda node, names: slice(*(one and value(one, names) for one in (node.lower, node.upper, node.step))),
    ast.ListComp: comprehension, ast.GeneratorExp: comprehension,
    ast.JoinedStr: lambda node, names: "".join(value(one, names) for one in node.values), ast.FormattedValue: formatted,
}  # fmt: skip
ALLOWED = {ast.Load, ast.Store, ast.And, ast.Or, ast.comprehension, ast.keyword, ast.Starred}
