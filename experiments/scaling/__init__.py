"""A scaling study: what is to be measured, how, in which order, and what was found.

| file                     | what it says                                                                                   |
|--------------------------|------------------------------------------------------------------------------------------------|
| `study.py`               | settings, and the points that follow from them: networks, series, numbers of ranks             |
| `runs.py`                | which point is run next and when it was run often enough; its job; the file while a sweep runs |
| `turns.py`               | the job in which several series take turns                                                     |
| `environment.py`         | what a run was measured on, so that only what compares is put together                         |
| `records.py`             | the file of a study, a record a line, and what a record says                                   |
| `statistics.py`          | the interval of a median, or of a mean                                                         |
| `summary.py`             | the records of each point as one row: value, interval, ratio, speedup, bytes, memory           |
| `predicted.py`           | the same records, predicted for any machine and number of ranks                                |
| `table.py`, `tidy.py`    | the rows for the terminal; the records for other tools, a row a point and repeat               |
| `page.py`                | the page of a study: one HTML file                                                             |
| `comparison.py`          | which points of two studies differ by more than noise                                          |
| `model.py`               | serial fractions; where a prediction is wrong; predictions by a fitted machine                 |
| `fit.py`                 | a machine fitted to the points on few ranks, which predicts those on more                      |
| `export.py`              | files for Extra-P, Hatchet and Thicket                                                         |
"""
