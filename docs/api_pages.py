"""A Sphinx extension: the API reference beside the pages of docs/api on what the packages export.

It writes a page for each folder of the code, with all of its modules, from their docstrings: into docs/api/generated before
Sphinx reads its sources, so a new module is in the reference at once. What a package exports is described on the page of the
package alone, to which type hints are linked from everywhere. The build warns of an export that lacks its
signature, parameters or example there.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, DTypeLike, NDArray

PACKAGES = "nn", "parallel", "datasets"
FOLDER = Path("docs", "api", "generated")


def exports(root):
    """{full name of a function or class where it is defined: its full name in the package that exports it}."""
    found = {}
    for package in PACKAGES:
        file, full = root / package / "__init__.py", f"gridgrad.{package}"
        found |= {f"{full}.{name}": f"{full}.{name}" for name in defined(file) if not name.startswith("_")}
        for node in tree(file).body:
            if isinstance(node, ast.ImportFrom) and node.module.startswith("gridgrad."):
                inside = defined(root.joinpath(*node.module.split(".")[1:]).with_suffix(".py"))
                for alias in node.names:
                    if alias.name in inside:
                        found[f"{node.module}.{alias.name}"] = f"{full}.{alias.asname or alias.name}"
    return found


def defined(file):
    """The names of the functions and classes in a file."""
    return [node.name for node in tree(file).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]


@cache
def tree(file):
    """The syntax tree of a file; an empty one if there is no such file."""
    return ast.parse(file.read_text(encoding="utf-8") if file.exists() else "")


def folders(root):
    """Those of the code that have modules, from the top down: paths relative to the repository."""
    for package in PACKAGES:
        for file in sorted((root / package).rglob("__init__.py")):
            if len(list(file.parent.glob("*.py"))) > 1:
                yield file.parent.relative_to(root)


def page(root, folder):
    """The reStructuredText of the page of a folder: the folder itself, and each module in a section of its own."""
    package, exported = ".".join(("gridgrad", *folder.parts)), exports(root)
    modules = sorted(file.stem for file in (root / folder).glob("*.py") if not file.stem.startswith("__"))
    inside = len(folder.parts) > 1
    parts = [heading(package if inside else f"{package}: modules", "=")]
    parts += [f".. automodule:: {package}\n   :no-members:\n"] if inside else []
    for module in modules:
        full = f"{package}.{module}"
        elsewhere = [name for name in exported if name.rpartition(".")[0] == full]
        parts.append(heading(full, "-"))
        parts.append(f".. automodule:: {full}\n")
        if elsewhere:
            parts[-1] += f"   :exclude-members: {', '.join(name.rpartition('.')[2] for name in elsewhere)}\n"
            parts.append(f"Exported: {', '.join(f':py:obj:`{exported[name]}`' for name in elsewhere)}.\n")
    return "\n".join(parts)


def heading(text, line):
    return f"{text}\n{line * len(text)}\n"


def write(app):
    root = Path(app.srcdir)
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    pages = {root / FOLDER / f"gridgrad.{'.'.join(folder.parts)}.rst": page(root, folder) for folder in folders(root)}
    for old in set((root / FOLDER).glob("*.rst")) - pages.keys():
        old.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # Sphinx reads what is newer than its last build
            path.write_text(text, encoding="utf-8")


def linked(app, env, node, contnode):
    """A link from a type hint to the page of the package that exports the type; None if none does."""
    exported = exports(Path(app.srcdir))
    target = node.get("reftarget", "")
    public = exported.get(target) or next((name for name in exported.values() if name.rpartition(".")[2] == target), None)
    if node.get("refdomain") != "py" or public is None:
        return None
    return env.get_domain("py").resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, contnode)


def named(app, what, name, thing, options, signature, returned):
    """A signature with the names of NumPy's types, in place of the unions that they stand for."""
    from sphinx.util.typing import stringify_annotation

    types = {"typing.ArrayLike": ArrayLike, "typing.DTypeLike": DTypeLike, "ndarray": NDArray[Any]}
    for short, kind in types.items():
        long = stringify_annotation(kind, "smart")
        signature, returned = (text and text.replace(long, f"~numpy.{short}") for text in (signature, returned))
    return signature, returned


def lacks(html, name):
    """What the page of a package, as HTML, lacks of something exported: a list of words, empty if it has all."""
    signature, _, description = html.partition(f'id="{name}"')[2].partition("</dt>")
    description = description.partition('<dl class="py class"')[0].partition('<dl class="py function"')[0]
    needed = {"a signature": bool(signature), "an example": "&gt;&gt;&gt;" in description}
    if "sig-param" in signature:
        needed["its parameters"] = ">Parameters" in description
    return [what for what, is_there in needed.items() if not is_there]


def count(app, exception):
    """Warn of everything exported that is not described on the page of its package."""
    from sphinx.util.logging import getLogger

    if exception is None and app.builder.format == "html":
        for name in exports(Path(app.srcdir)).values():
            html = Path(app.outdir, "docs", "api", f"{name.split('.')[1]}.html").read_text(encoding="utf-8")
            if missing := lacks(html, name):
                getLogger(__name__).warning("%s lacks %s on the page of its package", name, ", ".join(missing))


def setup(app):
    app.connect("builder-inited", write)
    app.connect("build-finished", count)
    app.connect("autodoc-process-signature", named)
    app.connect("missing-reference", linked)
    return {"parallel_read_safe": True}
