"""All targets. Another reader, such as one of checkpoints, joins by a Target in one of these tables, or in one of its own."""

from tests.fuzz import (
    targets_checkpoint,
    targets_data_sets,
    targets_documents,
    targets_hdf5,
    targets_options,
    targets_table,
    targets_texts,
)

TARGETS = (
    *targets_data_sets.TARGETS,
    *targets_hdf5.TARGETS,
    *targets_table.TARGETS,
    *targets_documents.TARGETS,
    *targets_texts.TARGETS,
    *targets_options.TARGETS,
    *targets_checkpoint.TARGETS,
)
