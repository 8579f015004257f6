"""Mechanical faults: each operator, number, condition or loop of the code changed a little, by the operators of cosmic-ray.

Left out is what can not be noticed: texts for people, annotations, and what `unnoticed.toml` lists with the reason why it
changes nothing that a test could see. An entry [[rule]] there is about constants, functions and classes of a file, all of whose
faults are left out; an entry [[one]] is about one fault.
"""

import ast
import tomllib
from collections import Counter
from hashlib import sha256

from tests.mutants.faults import HERE, MECHANICAL, ROOT, Fault

SOUGHT = "placement", "plans", "sync", "training", "pipeline", "protocols", "checkpoint"
FOLDERS = "nn", *(f"parallel/{name}" for name in SOUGHT)
FEWEST = 15  # faults of a folder in a sample
FOR_PEOPLE = "__repr__", "__str__", "description", "describe", "announce"  # functions
SAID = "print", "say", "warn"  # calls
BINARY = (
    "Add_Sub", "Sub_Add", "Mul_Add", "Mul_FloorDiv", "Div_Mul", "FloorDiv_Mul", "Mod_FloorDiv", "Pow_Mul", "RShift_LShift",
    "LShift_RShift", "BitOr_BitAnd", "BitAnd_BitOr",
)  # fmt: skip
COMPARISONS = (
    "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt", "Is_IsNot",
    "IsNot_Is",
)  # fmt: skip
OPERATORS = (
    *(f"ReplaceBinaryOperator_{pair}" for pair in BINARY),
    *(f"ReplaceComparisonOperator_{pair}" for pair in COMPARISONS),
    "ReplaceUnaryOperator_USub_UAdd", "ReplaceUnaryOperator_Delete_Not", "AddNot", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak",
    "ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop", "RemoveDecorator",
)  # fmt: skip


def sample(number, seed, root=ROOT):
    """About so many faults, spread over FOLDERS by the numbers of places that can be changed: a list in a random order.

    It depends on the seed and on the lines that are changed, so that changes of other lines leave most of it as it is.
    ValueError if cosmic-ray is not installed.
    """
    by_folder = {folder: places(root, folder) for folder in FOLDERS}
    total, found = sum(map(len, by_folder.values())), []
    for candidates in by_folder.values():
        wanted, seen = max(FEWEST, round(number * len(candidates) / total)), set()
        for order, place in sorted((place.order(seed), place) for place in candidates):
            fault = place.fault() if len(seen) < wanted else None
            if fault and fault.key not in seen:
                seen.add(fault.key)
                found.append((order, fault))
    return [fault for _, fault in sorted(found, key=lambda pair: pair[0])]


def places(root, folder):
    """All Places in the files of a folder and of those in it: a list."""
    found = []
    for path in sorted((root / folder).rglob("*.py")):
        if path.name != "__init__.py":
            found += File(root, path.relative_to(root).as_posix()).places()
    return found


class File:
    """A file whose code is changed. root: of the repository. name: of the file, relative to it."""

    def __init__(self, root, name):
        self.name, self.text = name, (root / name).read_text()
        self.syntax = ast.parse(self.text)
        self.left_out = [*for_people(self.syntax), *unnoticed_parts(name, self.text)]

    def places(self):
        try:
            from cosmic_ray.ast import ast_nodes, get_ast
            from cosmic_ray.operators.provider import OperatorProvider
        except ImportError:
            raise ValueError("mechanical faults need cosmic-ray, which make mutants installs") from None
        self.tree, lines, counts, found = get_ast(self.text), self.text.splitlines(), Counter(), []
        operators = [(name, OperatorProvider()[name]()) for name in OPERATORS]
        for node in list(ast_nodes(self.tree)):
            for name, operator in operators:
                for index, (start, stop) in enumerate(operator.mutation_positions(node)):
                    if any(first <= start and stop <= last for first, last in self.left_out):
                        continue
                    place = lines[start[0] - 1], start[1], name, index
                    counts[place] += 1
                    found.append(Place(self, node, operator, index, (self.name, *place, counts[place])))
        return found


class Place:
    """A place in a File that an operator of cosmic-ray can change. node: of the tree of parso. index: which of its changes.
    known_by: what does not depend on the rest of the file."""

    def __init__(self, file, node, operator, index, known_by):
        self.file, self.node, self.operator, self.index, self.known_by = file, node, operator, index, known_by

    def __lt__(self, other):
        return self.known_by < other.known_by

    def order(self, seed):
        return sha256(repr((seed, *self.known_by)).encode()).hexdigest()

    def fault(self):
        """The Fault; None if it changes nothing, or the result is no Python."""
        changed = self._changed()
        try:
            if ast.dump(ast.parse(changed)) == ast.dump(self.file.syntax):
                return None
            compile(changed, self.file.name, "exec")
        except SyntaxError:
            return None
        old, new = around(self.file.text, changed)
        return Fault(self.known_by[3], self.file.name, old, new, kind=MECHANICAL)

    def _changed(self):
        """The text of the file with the change. The operators change the tree in place, so it is put back."""
        parent, kept = self.node.parent, []
        nodes = [self.node, *([parent] if parent else [])]
        while nodes:
            node = nodes.pop()
            children = getattr(node, "children", None)
            kept.append((node, "value", node.value) if children is None else (node, "children", list(children)))
            nodes += children or () if node is not parent else ()
        new = self.operator.mutate(self.node, self.index)
        if new is not self.node:
            siblings = parent.children
            siblings[siblings.index(self.node)] = new
            parent.children = [child for child in siblings if child is not None]
        try:
            return self.file.tree.get_code()
        finally:
            for node, attribute, value in kept:
                setattr(node, attribute, value)


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
            wanted, tree = set(rule.get("names", ())), ast.parse(text)
            if not wanted:
                yield (1, 0), (len(text.splitlines()) + 1, 0)
            for known_as, node in named(tree):
                if known_as in wanted:
                    wanted.discard(known_as)
                    yield extent(node)
            if wanted:
                raise ValueError(f"unnoticed.toml: {name} has no {', '.join(sorted(wanted))}")


def named(tree, prefix=""):
    """(name, node) of each constant, function and class of a module, and of those in classes, as "Class.function". Yields."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from named(node, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            for one in ast.walk(target):
                if isinstance(one, ast.Name):
                    yield prefix + one.id, node


def extent(node):
    start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return (start, 0 if start < node.lineno else node.col_offset), (node.end_lineno, node.end_col_offset)


def unnoticed_ones():
    """{key of a Fault: why it changes nothing} of the faults that are listed one by one."""
    return {Fault("", one["file"], one["old"], one["new"]).key: one["why"] for one in unnoticed("one")}
