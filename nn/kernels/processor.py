"""The processor of this process and the BLAS library, as far as they decide which way to multiply matrices is fastest."""

import platform
from dataclasses import dataclass
from functools import cache

from threadpoolctl import threadpool_info


@dataclass(frozen=True)
class Processor:
    """What the system says about the processor. Where it does not say it, texts and flags are empty and numbers are 0."""

    name: str = ""
    vendor: str = ""
    family: int = 0
    flags: frozenset = frozenset()
    model: int = 0

    @property
    def title(self):
        """The name with family and model, which tell generations apart where virtual machines give all of them one name."""
        return f"{self.name} (family {self.family}, model {self.model})" if self.family else self.name


@dataclass(frozen=True)
class Blas:
    """A BLAS library. name: such as openblas. kernels: the processor that its kernels are for, such as SkylakeX."""

    name: str = "unknown"
    version: str = ""
    kernels: str = ""
    threads: int = 0

    def __str__(self):
        return " ".join(filter(None, (self.name, self.version, self.kernels)))


@cache
def processor():
    """The Processor, from /proc/cpuinfo where there is one."""
    try:
        with open("/proc/cpuinfo") as file:
            return parsed(file.read())
    except (OSError, ValueError):
        return Processor(platform.processor() or platform.machine())


def parsed(cpuinfo):
    """The Processor that a text like that of /proc/cpuinfo describes: the first of several."""
    first, _, _ = cpuinfo.strip().partition("\n\n")
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    name = entries.get("model name") or platform.processor() or platform.machine()
    family, model = (int(text) if text.isdecimal() else 0 for text in map(entries.get, ("cpu family", "model"), ("", "")))
    return Processor(name, entries.get("vendor_id", ""), family, frozenset(entries.get("flags", "").split()), model)


def blas():
    """The Blas of NumPy. Without a version and with 0 threads if too little is known of it."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "numpy" in pool["filepath"]]
    if len(pools) != 1:
        return Blas()
    pool = pools[0]
    return Blas(pool["internal_api"], pool["version"] or "", pool.get("architecture") or "", pool["num_threads"])
