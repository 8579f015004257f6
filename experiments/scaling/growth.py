"""How a quantity grows with the number of ranks p: sums of terms c p^i log2(p)^j, the form in which Extra-P has its models.

After Calotoiu, Hoefler, Poke, Wolf: Using automated performance modeling to find scalability bugs in complex codes (2013).
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import log2

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
FACTOR = re.compile(r"(p|log2\(p\))(?:\^\((-?\d+(?:/\d+)?)\))?")


@dataclass(frozen=True)
class Growth:
    """A sum of terms. terms: ((coefficient, exponent of p, exponent of log2(p)), ..), each pair of exponents once."""

    terms: tuple

    def __call__(self, ranks):
        """The value on so many ranks; with a negative exponent of the logarithm, on at least 2."""
        return sum(c * float(ranks) ** float(i) * (log2(ranks) ** float(j) if j else 1.0) for c, i, j in self.terms)

    def __add__(self, other):
        found = defaultdict(float)
        for coefficient, *exponents in (*self.terms, *other.terms):
            found[tuple(exponents)] += coefficient
        return Growth(tuple((c, *exponents) for exponents, c in found.items()))

    def __str__(self):
        small = 1e-9 * max((abs(c) for c, *_ in self.terms), default=0)  # what is left of rounding
        words = [" ".join([f"{c:.4g}", *powers(i, j)]) for c, i, j in self.terms if abs(c) > small]
        return " + ".join(words).replace("+ -", "- ") or "0"


def powers(exponent, of_logarithm):
    """The words for p^i and log2(p)^j, without those of which the exponent is 0."""
    for name, power in (("p", exponent), ("log2(p)", of_logarithm)):
        if power:
            yield name if power == 1 else f"{name}^{power}" if power.denominator == 1 else f"{name}^({power})"


def constant(coefficient, power=0):
    """The Growth of coefficient p^power."""
    return Growth(((coefficient, Fraction(power), Fraction(0)),))


def product(coefficient, power, axis, divisor=1):
    """The Growth of coefficient p^power (p^axis / divisor - 1).

    This is what collectives along an axis of p^axis / divisor ranks send. power, axis: Fractions or whole numbers.
    """
    return constant(-coefficient, power) + constant(coefficient / divisor, Fraction(power) + Fraction(axis))


def parsed(text):
    """The Growth of a model as Extra-P prints it: "1.5 + -2.0 * p^(1/2) * log2(p)^(1)". ValueError for any other text."""
    terms = []
    for term in text.strip().split(" + "):
        coefficient, *factors = term.split(" * ")
        if not re.fullmatch(NUMBER, coefficient):
            raise ValueError(f"'{text}' is no model that Extra-P prints for one parameter p")
        exponents = {"p": Fraction(0), "log2(p)": Fraction(0)}
        for factor in factors:
            if not (match := FACTOR.fullmatch(factor)):
                raise ValueError(f"'{text}' is no model that Extra-P prints for one parameter p")
            exponents[match[1]] += Fraction(match[2] or 1)
        terms.append(Growth(((float(coefficient), *exponents.values()),)))
    return sum(terms, Growth(()))
