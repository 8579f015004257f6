"""The partitions of `reproduce eserol2019`: which ones are searched for, and how they are kept.

Kept are only the numbers of filters of each rank, or the owners of blocks of channels, and how long the search took, on which
processor. What a partition costs is always computed from these, on the full hypergraph of VGG16, and so is the same wherever it
was found.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from gridgrad.experiments.papers.eserol2019 import count_exact, vgg16
from gridgrad.nn.kernels.processor import processor
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning import chains, mt_kahypar
from gridgrad.parallel.partitioning.good_partition import FINE_BLOCKS, fine_search

EPSILON = 0.1
OTHERS = 0.03, 0.15, 0.2  # imbalances of appendix A
PROVED = 2, 4  # ranks
DENSE_GROUPS = 8  # of neurons, where the fully connected layers are divided
EVEN = 1.1005  # max/avg: what a partition with an imbalance of 0.1 may have, rounded as it is printed
LOOSE = vgg16.WORKS[vgg16.LAYERS.index("FC1")] / (sum(vgg16.WORKS) / 128)  # max/avg of 128 ranks, one of which has FC1


@dataclass(frozen=True)
class SearchCase:
    """A search. grain: "coarse", "fine", or "exact", the coarse grain with a proof. balance: the most work that a rank may
    have, over the mean. objective: see `chains.search`. groups: of the neurons of each fully connected layer."""

    grain: str
    ranks: int
    balance: float = 1 + EPSILON
    objective: str = "volume"
    groups: int = 1

    @property
    def words(self):
        """All of it in words."""
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items())


DRAWN = SearchCase("coarse", 4), SearchCase("coarse", 4, 1.01)  # partitions in the picture


def cases(ranks, balances, others):
    """All searches for these numbers of ranks. balances: {grain: {ranks: max/avg of the thesis}}. others: the numbers of ranks
    with the imbalances of appendix A."""
    found = [SearchCase("exact", n) for n in ranks if n in PROVED]
    for grain in ("coarse", "fine"):
        found += [SearchCase(grain, n) for n in ranks]
        found += [SearchCase(grain, n, balances[grain][n]) for n in ranks]
        found += [SearchCase(grain, n, LOOSE) for n in ranks if n == 128]
        found += [SearchCase(grain, n, 1 + imbalance) for imbalance in OTHERS for n in others]
    found += [SearchCase("coarse", n, objective=objective) for n in ranks if n <= 16 for objective in ("messages", "largest")]
    found += [case for case in DRAWN if case.ranks in ranks and case not in found]
    return found + [SearchCase("coarse", n, groups=DENSE_GROUPS) for n in ranks if n >= 64]


def possible(wanted):
    """These cases, but for fine ones where there is no partitioner."""
    return [case for case in wanted if case.grain != "fine" or mt_kahypar.find_spec("mtkahypar")]


def search(case, **options):
    """What is kept of a case: its fields, the partition, and the seconds that it took. options: of `fine_search`."""
    start = perf_counter()
    if case.grain == "fine":
        models = partial(vgg16.model, "fine")
        kept = contracted(fine_search(models, case.ranks, case.balance - 1, **options), case)
    else:
        speeds, epsilon, chain = [1] * case.ranks, case.balance - 1, vgg16.chain(case.groups)
        if case.grain == "exact":
            counts = count_exact.solve(chain, speeds, epsilon).counts
        else:
            counts = chains.search(chain, speeds, epsilon, case.objective)
        kept = {"counts": [words(row) for row in counts[1:]]}
    return asdict(case) | {"seconds": round(perf_counter() - start, 2), "searched_on": processor().title} | kept


def contracted(owners, case):
    """Owners of blocks, for the fewest blocks of which they are owners."""
    for blocks in FINE_BLOCKS:
        try:
            return {"blocks": blocks, "parts": words(vgg16.model("fine", blocks).parts(owners))}
        except ValueError:  # they divide one of these blocks
            continue
    raise ValueError(f"the partition for {case} has none of the numbers of blocks {FINE_BLOCKS}")


def owners_of(kept):
    """The case and the Owners of what `search` has returned. Raises UserError if that is not a partition of VGG16."""
    try:
        case = replace(SearchCase("", 0), **{name: kept[name] for name in asdict(SearchCase("", 0))})
        if case.grain == "fine":
            return case, vgg16.model("fine", kept["blocks"]).owners(numbers(kept["parts"]), case.ranks)
        chain, rows = vgg16.chain(case.groups), [numbers(row) for row in kept["counts"]]
        image = np.eye(1, case.ranks, dtype=int)  # at the first rank that needs it, or at any other: `parts` decides
        return case, vgg16.owners(chain.check(np.vstack([image, *rows])))
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"tables.json: a kept partition is none of VGG16 ({error}): search again, with --full") from None


def words(row):
    """Whole numbers as text, which takes one line of a file."""
    return " ".join(map(str, row))


def numbers(text):
    return np.array(text.split(), int)


def proof(ranks):
    """The best coarse partition, an `Exact`."""
    return count_exact.solve(vgg16.chain(), [1] * ranks, EPSILON)
