"""The process grid: communicators, collectives that count their bytes, transfers, devices and clocks."""
