"""Whether protocols still compute what they have computed: see `history.py`."""

import json

import numpy as np
import pytest

from tests.parallel.protocols.history import FILE, TEXTS, history

STORED = json.loads(FILE.read_text())


@pytest.mark.parametrize("text", TEXTS)
def test_a_protocol_does_what_it_did(text):
    for now, before in zip(history(text), STORED[text], strict=True):
        assert abs(np.array(now) - np.array(before)).max() < 1e-10
