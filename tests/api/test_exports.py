"""Everything that gridgrad exports has types, and a docstring that describes it and shows an example."""

import importlib
import inspect

import pytest

from tests.api.exports import PACKAGES, described, documented, exports, methods, parameters, sections

CASES = [pytest.param(thing, id=f"{package}.{name}") for package, name, thing in documented()]
CLASSES = [case for case in CASES if inspect.isclass(case.values[0]) and not issubclass(case.values[0], Exception)]


@pytest.mark.parametrize("thing", CASES)
def test_every_parameter_has_a_type_and_a_description(thing):
    given = parameters(thing)
    assert [one.name for one in given if one.annotation is one.empty] == []
    assert described(sections(thing).get("Parameters", "")) == [one.name for one in given]


@pytest.mark.parametrize("thing", CASES)
def test_what_a_function_returns_is_said(thing):
    if not inspect.isclass(thing):
        returned = inspect.signature(thing).return_annotation
        assert returned is not inspect.Signature.empty
        assert returned in (None, "None") or "Returns" in sections(thing) or "Yields" in sections(thing)


@pytest.mark.parametrize("thing", CASES)
def test_there_is_an_example_that_runs(thing):
    assert ">>> " in sections(thing).get("Examples", "")


@pytest.mark.parametrize("thing", CLASSES)
def test_methods_have_types_and_docstrings(thing):
    for name, function in methods(thing):
        signature = inspect.signature(function)
        given = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
        untyped = [one.name for one in given if one.annotation is one.empty]
        assert untyped == [] and signature.return_annotation is not inspect.Signature.empty, name
        assert any(getattr(base, name, None) is not None and getattr(base, name).__doc__ for base in thing.__mro__), name


@pytest.mark.parametrize("package", PACKAGES)
def test_values_are_described_by_their_package(package):
    module = importlib.import_module(package)
    values = [name for _, name, thing in exports() if thing is getattr(module, name, exports) and not callable(thing)]
    assert [name for name in values if f"`{name}`" not in module.__doc__] == []
    assert list(module.__all__) == sorted(module.__all__, key=str.lower), "sorted, so that a name is found"
