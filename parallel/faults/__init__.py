"""Finding what has gone wrong in a job whose ranks all still run: hangs, collectives that differ, replicas that differ."""
