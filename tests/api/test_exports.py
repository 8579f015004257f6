"""Everything that gridgrad exports has types, and a docstring that describes it and shows an example, which runs."""

import doctest
import inspect
from tempfile import TemporaryDirectory

import pytest

from tests.api.exports import described, documented, methods, parameters, sections
from tests.mpi import mpi

CASES = [pytest.param(thing, id=f"{package}.{name}") for package, name, thing in documented()]


@pytest.mark.parametrize("thing", CASES)
def test_parameters_and_what_is_returned_have_types_and_descriptions(thing):
    given, found = parameters(thing), sections(thing)
    assert [one.name for one in given if one.annotation is one.empty] == []
    assert described(found.get("Parameters", "")) == [one.name for one in given]
    assert ">>> " in found.get("Examples", "")
    if not inspect.isclass(thing):
        returned = inspect.signature(thing).return_annotation
        assert returned is not inspect.Signature.empty
        assert returned in (None, "None") or "Returns" in found or "Yields" in found


@pytest.mark.parametrize("thing", [case for case in CASES if inspect.isclass(case.values[0])])
def test_methods_have_types_and_docstrings(thing):
    for name, function in [] if issubclass(thing, Exception) else methods(thing):
        given = [one for one in parameters(function) if one.name not in ("self", "cls")]
        returned = inspect.signature(function).return_annotation
        assert inspect.Signature.empty not in [returned, *(one.annotation for one in given)], name
        assert any(getattr(base, name, None) is not None and getattr(base, name).__doc__ for base in thing.__mro__), name


@mpi(1, 2)
def test_the_examples_run(comm, monkeypatch):
    """On two ranks those of `gridgrad.parallel`."""
    finder, said = doctest.DocTestFinder(recurse=False), []
    with TemporaryDirectory() as folder:
        monkeypatch.setenv("GRIDGRAD_DATA", comm.bcast(folder))
        for package, name, thing in documented():
            if comm.size > 1 and package != "gridgrad.parallel":
                continue
            for one in (thing, *(function for _, function in (methods(thing) if inspect.isclass(thing) else ()))):
                for test in finder.find(one, name, globs={}):
                    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
        comm.barrier()
    assert not said, "".join(said)
