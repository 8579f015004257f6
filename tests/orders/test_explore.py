"""The exploration itself, of made-up programs: what it leaves out shows nothing that it does not find."""

import random

import pytest

from tests.orders.explore import BruteForce, explore
from tests.orders.machine import GO, HANDLE, Pause, Violation
from tests.orders.watch import Watch

MOST = 1000  # orders, beyond which a program is left out


class Desk:
    """The objects of an actor: numbers, of which each message changes some by others."""

    def __init__(self, numbers):
        self.a, self.b, self.c, self.seen = *numbers, set()


class Look(Pause):
    """A look for messages. enough: the value of what decides whether the actor may go on without one."""

    is_open = True

    def __init__(self, program, desk, rank, needed):
        self.program, self.desk, self.rank, self.needed = program, desk, rank, needed

    def actions(self, actor):
        found = [(GO, actor)] if len(self.desk.seen) >= self.needed else []
        return found + [(HANDLE, actor, source) for (source, to), mail in self.program.mail.items() if to == actor and mail]

    def causes(self, action):
        return (self.program.mail[action[2], action[1]][0][1],) if action[0] == HANDLE else ()


class Program:
    """A program that is drawn at random: actors send each other messages, and what one does may depend on all that came.

    Each actor sends some, looks for messages, sends again, .., and waits at some looks until enough have come.
    """

    def __init__(self, seed):
        draw = random.Random(seed)
        self.size = draw.choice((2, 2, 3))
        self.scripts = [
            [
                (draw.randrange(self.size), draw.randrange(4), draw.randrange(3) if draw.random() < 0.4 else 0)
                for _ in range(draw.choice((1, 2, 2) if self.size == 2 else (1, 1, 2)))
            ]
            for _ in range(self.size)
        ]
        self.rules = [[draw.randrange(7) for _ in range(4)] for _ in range(self.size)]
        self.answers = draw.random() < 0.5

    def execute(self, machine):
        self.machine, self.mail = machine, {}
        self.desks = [Desk((rank, 0, 0)) for rank in range(self.size)]
        for rank in range(self.size):
            machine.add(rank, lambda rank=rank: self.play(rank))
            watch = machine.actors[rank].watch = Watch()
            watch.add("desk", self.desks[rank])
        machine.missed = lambda: [((HANDLE, to, source), (mail[0][1],)) for (source, to), mail in self.mail.items() if mail]
        machine.run()
        return tuple((desk.a, desk.b, desk.c, frozenset(desk.seen)) for desk in self.desks)

    def send(self, rank, to, number):
        if to != rank:
            self.mail.setdefault((rank, to), []).append((number, self.machine.number))
            self.machine.event.writes.add(("mail", rank, to))
            self.machine.event.effects.append((to, number))

    def play(self, rank):
        desk, actor = self.desks[rank], self.machine.actors[rank]
        self.machine.start(rank)
        for number, (to, kind, needed) in enumerate(self.scripts[rank]):
            self.send(rank, to, (kind + desk.a) % 4)
            while (action := actor.wait(Look(self, desk, rank, needed)))[0] == HANDLE:
                content, _ = self.mail[action[2], rank].pop(0)
                self.machine.event.label = (*action, content)
                self.handle(rank, action[2], content, number)
        if desk.c == 3:
            raise Violation(f"{rank} has 3")

    def handle(self, rank, source, kind, number):
        """One of four things, some of which may be exchanged, some not, and some only sometimes."""
        desk, rules = self.desks[rank], self.rules[rank]
        desk.seen.add((source, kind))
        if kind == 0:
            desk.a = (desk.a * 2 + rules[0]) % 5
        elif kind == 1:
            desk.b = (desk.b + rules[1]) % 5
        elif kind == 2:
            desk.c = desk.c + 1 if len(desk.seen) > 1 else desk.c
        elif len(desk.seen) == rules[3] % 3 + 1:
            desk.b = desk.a
        if self.answers and kind == rules[2] % 4 and len(desk.seen) < 3:
            self.send(rank, source, 1)


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 300), marks=pytest.mark.long)], ids=["some", "many"])
def test_what_is_left_out_shows_nothing_new(seeds):
    compared = left_out = 0
    for seed in seeds:
        every = explore(Program(seed), BruteForce(), most=MOST)
        if every.ends:
            some = explore(Program(seed))
            assert some.ends and some.orders <= every.orders
            assert some.results.keys() == every.results.keys(), seed
            assert some.violations.keys() == every.violations.keys(), seed
            compared, left_out = compared + 1, left_out + every.orders - some.orders
    assert compared > len(seeds) / 2 and left_out > 50 * compared
