"""The energy that the processors take, from the counters of RAPL (running average power limit) that Linux shows.

The counters are of whole processors and their memory, whoever uses them: on a shared machine they also count others' work.
Many systems let only root read them, and virtual machines have none.
"""

from pathlib import Path

FOLDER = Path("/sys/class/powercap")


class EnergyMeter:
    """Adds up the energy of this machine's processors and memory.

    folder: where the counters are. reason: None, or in words why the energy cannot be measured here.

    Counters start again from 0 after some 10^5 joules, which a processor under load takes in about 20 minutes. So `read` must
    be called more often than that.
    """

    def __init__(self, folder=FOLDER):
        self.joules, self.reason, self._last = 0.0, None, {}
        try:
            self.zones = {zone: int((zone / "max_energy_range_uj").read_text()) for zone in zones(folder)}
            self._last = {zone: count(zone) for zone in self.zones}
        except (OSError, ValueError) as error:
            self.zones = {}
            denied = isinstance(error, PermissionError)
            self.reason = f"the counters in {folder} are for root alone" if denied else f"{folder} can not be read: {error}"
        else:
            if not self.zones:
                self.reason = f"this machine shows no counters (RAPL) in {folder}"

    def read(self):
        """The joules since the meter was made; None where they cannot be measured."""
        if self.reason:
            return None
        for zone, largest in self.zones.items():
            now = count(zone)
            rise = now - self._last[zone]
            self.joules += (rise if rise >= 0 else rise + largest + 1) / 1e6
            self._last[zone] = now
        return self.joules


def zones(folder):
    """The folders of the counters that together count everything once: those of processors, and of the memory beside them.

    What a processor's counter includes already, such as that of its cores, is left out, and so is what includes all others.
    """
    names = {zone: (zone / "name").read_text().strip() for zone in sorted(Path(folder).glob("intel-rapl:*"))}
    return [zone for zone, name in names.items() if name.startswith("package") or name == "dram"]


def count(zone):
    """The counter of a zone, in microjoules."""
    return int((zone / "energy_uj").read_text())
