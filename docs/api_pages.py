"""A Sphinx extension: a page of the API reference for each folder of the code, with all of its modules, from their docstrings.

The pages are written into docs/api/generated before Sphinx reads its sources, so a new module is in the reference at once.
"""

from pathlib import Path

PACKAGES = "nn", "parallel", "datasets"
FOLDER = Path("docs", "api", "generated")


def folders(root):
    """Those of the code, from the top down: paths relative to the repository."""
    for package in PACKAGES:
        for file in sorted((root / package).rglob("__init__.py")):
            yield file.parent.relative_to(root)


def page(root, folder):
    """The reStructuredText of the page of a folder: the package itself, and each module in a section of its own."""
    package = ".".join(("gridgrad", *folder.parts))
    modules = sorted(file.stem for file in (root / folder).glob("*.py") if not file.stem.startswith("__"))
    parts = [heading(package, "="), f".. automodule:: {package}\n   :no-members:\n"]
    for module in modules:
        parts += [heading(f"{package}.{module}", "-"), f".. automodule:: {package}.{module}\n"]
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


def setup(app):
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
