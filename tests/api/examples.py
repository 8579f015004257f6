"""Runs the examples in the docstrings of a package's exports: `mpiexec -n 2 python -m tests.api.examples gridgrad.parallel`."""

import doctest
import inspect
import sys

from gridgrad.parallel.job.run import run
from tests.api.exports import documented, methods


def failures(thing):
    """What is wrong with the examples of a function or class, and of its methods, as text."""
    said = []
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for one in (thing, *(function for _, function in (methods(thing) if inspect.isclass(thing) else ()))):
        for test in finder.find(one, globs={}):
            runner.run(test, out=said.append)
    return "".join(said)


def main():
    for package, name, thing in documented():
        if package == sys.argv[1] and (said := failures(thing)):
            raise AssertionError(f"{package}.{name}\n{said}")


if __name__ == "__main__":
    run(main)
