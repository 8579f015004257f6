"""The network of one rank, its training steps, and how samples reach the ranks."""

from gridgrad.parallel.training.minibatch_readers import MicroBatchReader
from gridgrad.parallel.training.steps import check_finite, minibatch_indices, steps_per_epoch

__all__ = ["MicroBatchReader", "check_finite", "minibatch_indices", "steps_per_epoch"]
