"""What a paper claims, and whether it holds here.

The claims are in `PAPER.toml`, with the expressions that find, from what was measured, counted or predicted here, whether each
holds. No claim is without a verdict. Where two passages of a paper contradict each other, that is a verdict of its
own: it says nothing about what is true here.
"""

from dataclasses import dataclass, replace

from gridgrad.experiments.papers.cited import DERIVED
from gridgrad.experiments.papers.items import KEPT, MEASURED

HOLDS, DIFFERS, OPEN = "holds here", "does not hold here", "can not be decided here"
CONTRADICTORY = "the paper contradicts itself"
VERDICTS = DIFFERS, HOLDS, OPEN, CONTRADICTORY  # contrary results first
FOLLOWS = DERIVED  # from what the paper prints, or by counting, without any measurement


@dataclass(frozen=True)
class Finding:
    """What is found of a claim. verdict: one of VERDICTS. numbers: those that decide it. reason: why it is so, or why it can
    not be decided. kind: MEASURED by the paper's own parts, KEPT by another program whose file the numbers name, PREDICTED, or
    FOLLOWS."""

    verdict: str
    numbers: str
    reason: str = ""
    kind: str = MEASURED

    def __post_init__(self):
        if not (self.numbers if self.verdict != OPEN else self.reason):
            raise ValueError(f"{self.verdict}: a finding needs its numbers, or the reason why there are none")


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, in our words, with what is found of it. main: whether the summary of the paper names it. finding:
    from the results that are kept. now: from what the run that writes the page measured, None where that measured nothing of
    it."""

    name: str
    says: str
    place: str
    main: bool
    finding: Finding
    now: Finding | None = None

    @property
    def verdict(self):
        """That of both findings. It can not be decided where one contradicts the other, nor where the kept numbers leave it
        open, which are of more measurements than those of now."""
        if self.finding.verdict == OPEN and self.finding.numbers:
            return OPEN
        decided = {one.verdict for one in (self.finding, self.now) if one is not None and one.verdict != OPEN}
        return decided.pop() if len(decided) == 1 else OPEN

    @property
    def is_disputed(self):
        """Whether what was measured now contradicts what was measured earlier."""
        return self.now is not None and self.verdict == OPEN != self.finding.verdict

    @property
    def findings(self):
        """[(its mark, Finding)] of both, without one that has no numbers where the other has."""
        both = [(KEPT if self.finding.kind == MEASURED else self.finding.kind, self.finding)]
        both += [(MEASURED, self.now)] if self.now is not None else []
        return [pair for pair in both if pair[1].numbers] or both[:1]


def in_order(claims):
    """Contrary results first; otherwise as in the paper."""
    return sorted(claims, key=lambda claim: VERDICTS.index(claim.verdict))


def with_now(before, now):
    """The Claims of `before`, with what was measured now beside. now: the same Claims from another measurement, or none."""
    fresh = {claim.name: claim.finding for claim in now if claim.finding.kind == MEASURED and claim.finding.numbers}
    return in_order(replace(claim, now=fresh.get(claim.name)) for claim in before)
