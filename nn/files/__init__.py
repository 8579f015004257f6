"""Files: JSON, HDF5 arrays, the cache folder, and writing a file so that it is whole or not there."""
