"""Signals ask for a checkpoint; before and afterwards they mean what they meant."""

import signal

import pytest

from gridgrad.parallel.checkpoint.saver import Signals

NUMBERS = signal.SIGTERM, signal.SIGUSR1


@pytest.fixture
def noted():
    """The numbers of the signals that came while nobody listened for them."""
    noted = []
    before = [signal.signal(number, lambda number, frame: noted.append(number)) for number in NUMBERS]
    yield noted
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_both_are_heard_while_somebody_listens(noted, number):
    signals = Signals()
    signals.listen()
    assert not signals.heard
    signal.raise_signal(number)
    assert signals.heard and not noted
    signals.listen_no_more()
    signal.raise_signal(number)
    assert noted == [number]


def test_with_nothing_left_to_save_a_warning_means_nothing(noted):
    signals = Signals()
    signals.listen()
    signals.nothing_left()
    for number in NUMBERS:
        signal.raise_signal(number)
    assert noted == [signal.SIGTERM] and not signals.heard


def test_who_never_listened_leaves_signals_alone(noted):
    Signals().nothing_left()
    signal.raise_signal(signal.SIGUSR1)
    assert noted == [signal.SIGUSR1]
