"""What gridgrad exports, and the sections of a docstring in numpydoc's form."""

import importlib
import inspect
import re

PACKAGES = "gridgrad.nn", "gridgrad.parallel", "gridgrad.datasets"
HEADING = re.compile(r"^(\w[\w ]*)\n(-{3,})$", re.MULTILINE)
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (.+))?$", re.MULTILINE)


def exports():
    """(name of the package, name, what it is) of everything exported."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            yield package, name, getattr(module, name)


def documented():
    """Those of the exports that are functions or classes."""
    return [(package, name, thing) for package, name, thing in exports() if callable(thing)]


def sections(thing):
    """{heading: text} of a docstring; "" for what stands in front of the first heading."""
    parts = HEADING.split(inspect.cleandoc(thing.__doc__ or ""))
    return {"": parts[0]} | dict(zip(parts[1::3], parts[3::3], strict=True))


def described(section):
    """The names of the parameters that a section describes."""
    return [name.strip("* ") for names, _ in ENTRY.findall(section) for name in names.split(",")]


def parameters(thing):
    """The parameters that a caller gives: a list of inspect.Parameter."""
    return list(inspect.signature(thing).parameters.values())


def methods(thing):
    """(name, function) of the public methods and properties of a class that its own package defines.

    A network of `gridgrad.parallel` also has the methods of one of `gridgrad.nn`, which are described there.
    """
    package = ".".join(thing.__module__.split(".")[:2])
    for name, member in inspect.getmembers(thing):
        member = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        function = inspect.unwrap(member)  # such as of a cached function
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__.startswith(f"{package}."):
            yield name, function
