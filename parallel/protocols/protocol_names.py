"""The update protocol that a text such as the value of `--protocol` names."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gridgrad.parallel.protocols.averaging import EASGD, SGP, LocalSGD, SlowMo, admm, diloco
from gridgrad.parallel.protocols.parallel_sgd import ParallelSGD
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.server import OWNERSHIPS, BulkServerShard, Downpour, ParameterServer

SYNC = "sync"
MOST = 2**31 - 1  # of a whole number


def at_least(least, kind=int, below=math.inf):
    """A function that reads a number from a text. ValueError outside the range, OverflowError for a whole number above MOST."""

    def read(text):
        number = kind(text)
        if kind is int and number > MOST:
            raise OverflowError
        if not least <= number < below:
            raise ValueError
        return number

    read.words = ("a whole number" if kind is int else "a number") + f" of at least {least}"
    read.words += f" and below {below}" if below < math.inf else ""
    return read


@dataclass(frozen=True)
class ProtocolForm:
    """How an update protocol is written: NAME:VALUE:..:WORD:..:option=VALUE:.., and what makes it. A row of PROTOCOLS.

    Parameters
    ----------
    make : class or function
        Called with (net, workers, make_optimizer) and keywords.
    help : str
        How it is written, for errors; `gridgrad help protocol` says what it means.
    values : dict
        {keyword: function that reads it from a text} of the values that must be there, in their order. Each function has an
        attribute `words` for errors, such as "a whole number of at least 1".
    words : dict
        {word: keywords that it stands for}, which may be there.
    options : dict
        {keyword: function that reads it}, which may be there.

    Examples
    --------
    >>> from gridgrad.parallel import PROTOCOLS
    >>> form = PROTOCOLS["local"]
    >>> form.help, list(form.values), form.values["period"].words
    ('local:K', ['period'], 'a whole number of at least 1')
    """

    make: Callable[..., Protocol]
    help: str
    values: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)


PERIOD = {"period": at_least(1)}
OWNERS = {name: {"owners": owners} for name, owners in OWNERSHIPS.items()}
POSITIVE, FRACTION = at_least(0, float), at_least(0, float, below=1)
FORMS: dict[str, ProtocolForm] = {
    "local": ProtocolForm(LocalSGD, "local:K", PERIOD),
    "post-local": ProtocolForm(LocalSGD, "post-local:START:K", {"start": at_least(0)} | PERIOD),
    "slowmo": ProtocolForm(SlowMo, "slowmo:K:BETA", PERIOD | {"beta": FRACTION}, options={"rate": POSITIVE}),
    "diloco": ProtocolForm(
        diloco, "diloco:H", PERIOD, options={"lr": POSITIVE, "momentum": FRACTION, "fragments": at_least(1)}
    ),
    "easgd": ProtocolForm(EASGD, "easgd:K:ALPHA", PERIOD | {"alpha": POSITIVE}),
    "admm": ProtocolForm(admm, "admm:K", PERIOD, options={"rho": POSITIVE}),
    "sgp": ProtocolForm(SGP, "sgp"),
    "parallel-sgd": ProtocolForm(ParallelSGD, "parallel-sgd", words={
        "epoch": {"each_epoch": True}, "shuffle": {"shuffles": True}, "exchange": {"each_epoch": True, "exchanges": True},
    }),
    "server:bsp": ProtocolForm(partial(ParameterServer, shard=BulkServerShard), "server:bsp", words=OWNERS),
    "server:asp": ProtocolForm(ParameterServer, "server:asp", words=OWNERS),
    "server:ssp": ProtocolForm(ParameterServer, "server:ssp:S", {"bound": at_least(0)}, OWNERS),
    "downpour": ProtocolForm(Downpour, "downpour:FETCH:PUSH", {"fetch": at_least(1), "push": at_least(1)}, OWNERS),
}  # fmt: skip


def parse(text: str) -> Callable[..., Protocol]:
    """The update protocol that a text names.

    Parameters
    ----------
    text : str
        Such as "sync", "local:8" or "server:ssp:2", see PROTOCOLS. ValueError if it names no protocol or has wrong values.

    Returns
    -------
    A function (net, workers, make_optimizer) that makes the Protocol, with the arguments of Protocol; there is an example.

    Examples
    --------
    >>> from gridgrad.parallel import parse_protocol
    >>> make = parse_protocol("server:ssp:2")
    >>> make.func.__name__, make.keywords
    ('ParameterServer', {'bound': 2})
    """
    if text == SYNC:
        return Protocol
    words = text.split(":")
    name = next((name for name in (":".join(words[:2]), words[0]) if name in FORMS), None)
    if name is None:
        raise ValueError(f"there is no protocol '{text}': use {', '.join((SYNC, *FORMS))}; see gridgrad help protocol")
    form, words = FORMS[name], words[name.count(":") + 1 :]
    if len(words) < len(form.values):
        raise ValueError(f"protocol {text}: write {form.help}; see gridgrad help protocol")
    keywords = {keyword: _read(text, keyword, read, word) for (keyword, read), word in zip(form.values.items(), words)}
    for word in words[len(form.values) :]:
        keyword, equals, value = word.partition("=")
        if word in form.words:
            keywords |= form.words[word]
        elif equals and keyword in form.options:
            keywords[keyword] = _read(text, keyword, form.options[keyword], value)
        else:
            known = (*form.words, *(f"{option}=.." for option in form.options))
            wrong = f"'{word}' is not one of {', '.join(known)}" if known else f"write {form.help}; see gridgrad help protocol"
            raise ValueError(f"protocol {text}: {wrong}")
    return partial(form.make, **keywords)


def _read(text, keyword, read, word):
    try:
        return read(word)
    except OverflowError:
        raise ValueError(f"protocol {text}: {keyword} must be at most {MOST}") from None
    except ValueError:
        raise ValueError(f"protocol {text}: {keyword} must be {read.words}, not '{word}'") from None
