"""Mechanical faults: each operator, number, condition or loop of the code changed a little, by the operators of cosmic-ray.

Left out is what can not be noticed: texts for people, annotations, and what `unnoticed.toml` lists with the reason why it
changes nothing that a test could see. An entry [[rule]] there is about constants, functions and classes of a file, all of whose
faults are left out; an entry [[one]] is about one fault.
"""

import ast
import tomllib
from hashlib import sha256

from tests.mutants.faults import HERE, ROOT, Fault

SOUGHT = "placement", "plans", "sync", "training", "pipeline", "protocols", "checkpoint"
FOLDERS = "nn", *(f"parallel/{name}" for name in SOUGHT)
FEWEST = 15  # faults of a folder in a sample
FOR_PEOPLE = "__repr__", "__str__", "description", "describe", "announce"  # functions
SAID = "print", "say", "warn"  # calls
OPERATORS = {  # of cosmic-ray: those of each kind
    "ReplaceBinaryOperator": """Add_Sub Sub_Add Mul_Add Mul_FloorDiv Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul RShift_LShift
        LShift_RShift BitOr_BitAnd BitAnd_BitOr""",
    "ReplaceComparisonOperator": "Eq_NotEq NotEq_Eq Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Is_IsNot IsNot_Is",
    "ReplaceUnaryOperator": "USub_UAdd Delete_Not",
    "": """AddNot ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd ReplaceBreakWithContinue
        ReplaceContinueWithBreak ExceptionReplacer NumberReplacer ZeroIterationForLoop RemoveDecorator""",
}


def sample(number, seed, root=ROOT):
    """About so many faults, spread over FOLDERS by the numbers of places that can be changed: a list in a random order.

    ValueError if cosmic-ray is not installed.
    """
    by_folder = {folder: places(root, folder) for folder in FOLDERS}
    total, found = sum(map(len, by_folder.values())), {}
    for candidates in by_folder.values():
        wanted, kept = max(FEWEST, round(number * len(candidates) / total)), {}
        for place in sorted(candidates, key=lambda place: order((seed, *place))):
            if len(kept) < wanted and (fault := changed(root, *place)):
                kept[fault.key] = fault
        found |= kept
    return sorted(found.values(), key=lambda fault: order((seed, fault.key)))


def order(key):
    return sha256(repr(key).encode()).hexdigest()


def cosmic_ray():
    """(the module of its trees, {name: operator})."""
    try:
        from cosmic_ray import ast as trees
        from cosmic_ray.operators.provider import OperatorProvider
    except ImportError:
        raise ValueError("mechanical faults need cosmic-ray, which make mutants installs") from None
    names = [f"{kind}_{name}".lstrip("_") for kind, pairs in OPERATORS.items() for name in pairs.split()]
    return trees, {name: OperatorProvider()[name]() for name in names}


def places(root, folder):
    """[(file, name of an operator, number of its place among those of the operator in the file)] of a folder."""
    (trees, operators), found = cosmic_ray(), []
    for path in sorted((root / folder).rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        left_out = [*for_people(ast.parse(text)), *unnoticed_parts(name, text)]
        nodes = list(trees.ast_nodes(trees.get_ast(text)))
        for operator in operators:
            positions = [position for node in nodes for position in operators[operator].mutation_positions(node)]
            found += [
                (name, operator, number)
                for number, (start, stop) in enumerate(positions)
                if path.name != "__init__.py" and not any(first <= start and stop <= last for first, last in left_out)
            ]
    return found


def changed(root, name, operator, number):
    """The Fault of a place; None if it changes nothing, or the result is no Python."""
    trees, operators = cosmic_ray()
    count, text = iter(range(10**9)), (root / name).read_text()

    class Change(trees.Visitor):
        def visit(self, node):
            for index, _ in enumerate(operators[operator].mutation_positions(node)):
                if next(count) == number:
                    return operators[operator].mutate(node, index)
            return node

    new = Change().walk(trees.get_ast(text)).get_code()
    try:
        compile(new, name, "exec")
    except SyntaxError:
        return None
    same = ast.dump(ast.parse(new)) == ast.dump(ast.parse(text))
    return None if same else Fault(operator, name, *around(text, new))


def around(text, changed):
    """(old, new): whole lines of two texts where they differ, and as many lines before them that `old` occurs once in text."""
    before, after = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    first = next(i for i in range(len(before)) if before[i : i + 1] != after[i : i + 1])
    behind = 0
    while behind < min(len(before), len(after)) - first and before[-1 - behind] == after[-1 - behind]:
        behind += 1
    stop, new_stop = len(before) - behind, len(after) - behind
    while text.count(old := "".join(before[first:stop])) != 1:
        first -= 1
    return old, "".join(after[first:new_stop])


def for_people(tree):
    """((line, column) of the beginning, (line, column) of the end) of what is said to people, and of annotations. Yields."""
    for node in ast.walk(tree):
        said = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) in SAID
        if isinstance(node, ast.Raise) or said or isinstance(node, ast.FunctionDef) and node.name in FOR_PEOPLE:
            yield extent(node)
        if isinstance(node, ast.AnnAssign):
            yield extent(node.annotation)
        for decorator in getattr(node, "decorator_list", ()):
            if "lru_cache" in ast.unparse(decorator):  # it saves time only
                yield (decorator.lineno, 0), (decorator.end_lineno + 1, 0)


def unnoticed(kind):
    """The entries of `unnoticed.toml`: "rule" or "one"."""
    return tomllib.loads((HERE / "unnoticed.toml").read_text()).get(kind, ())


def unnoticed_parts(name, text):
    """The same of what the rules say of a file and its text. ValueError if there is no such thing in it. Yields."""
    for rule in unnoticed("rule"):
        if rule["file"] == name:
            parts = dict(named(ast.parse(text)))
            if unknown := set(rule.get("names", ())) - parts.keys():
                raise ValueError(f"unnoticed.toml: {name} has no {', '.join(sorted(unknown))}")
            yield from [extent(parts[part]) for part in rule.get("names", ())] or [((1, 0), (text.count("\n") + 2, 0))]


def named(tree, prefix=""):
    """(name, node) of each constant, function and class of a module, and of those in classes, as "Class.function". Yields."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from named(node, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        yield from ((prefix + one.id, node) for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def extent(node):
    start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return (start, 0 if start < node.lineno else node.col_offset), (node.end_lineno, node.end_col_offset)


def unnoticed_ones():
    """{key of a Fault: why it changes nothing} of the faults that are listed one by one."""
    return {Fault("", one["file"], one["old"], one["new"]).key: one["why"] for one in unnoticed("one")}
