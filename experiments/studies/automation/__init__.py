"""Whether parallelism through our one call is as fast as the same parallelism written by hand with mpi4py."""
