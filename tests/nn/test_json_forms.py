"""What has a form passes, and of what has not the entry is named."""

import math

import pytest

from gridgrad.nn.files.json_forms import AT_LEAST_0, COUNT, NUMBER, SECONDS, TEXT, TRUTH, WHOLE, Each, Optional, check

FORM = {"name": TEXT, "rows": [{"count": COUNT, "seconds": SECONDS}], "sent": Each(AT_LEAST_0), "note": Optional(TEXT)}
GOOD = {"name": "a b", "rows": [{"count": 0, "seconds": 1e-3, "more": None}], "sent": {"x": 0, "y": 2.5}, "note": None}


def test_what_has_the_form_passes():
    check(GOOD, FORM)
    check({name: value for name, value in GOOD.items() if name != "note"}, FORM)
    check(GOOD | {"rows": []}, FORM)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": 7}, "name must be a text of at most 400 printable characters without $, not 7"),
        ({"name": "a\nb"}, r"not 'a\nb'"),
        ({"name": "$x$"}, "name must be a text"),
        ({"name": "x" * 401}, f"not '{'x' * 39}.."),
        ({"rows": {}}, "rows must be a list"),
        ({"rows": [7]}, "rows[0] must be an object"),
        ({"rows": [{"count": True, "seconds": 1}]}, "rows[0].count must be a whole number of at least 0, not True"),
        ({"rows": [{"count": 10**400, "seconds": 1}]}, "rows[0].count must be a whole number of at least 0, not another one"),
        ({"rows": [{"count": 1, "seconds": 0}]}, "rows[0].seconds must be a number of seconds above 1e-12, not 0"),
        ({"rows": [{"count": 1}]}, "rows[0] has no entry seconds"),
        ({"sent": {"x": -1}}, "sent.x must be a finite number of at least 0, not -1"),
        ({"sent": 7}, "sent must be an object"),
        ({"note": []}, "note must be a text of at most 400 printable characters without $, not a list"),
    ],
)
def test_the_entry_that_is_wrong_is_named(changes, words):
    with pytest.raises(ValueError) as caught:
        check(GOOD | changes, FORM)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "1", None, []])
def test_what_is_no_number(value):
    for kind in (NUMBER, AT_LEAST_0, SECONDS, WHOLE, COUNT):
        assert not kind.accepts(value)
    assert TRUTH.accepts(value) == (value is True)
