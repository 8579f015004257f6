"""A scaling study: what is to be measured, how, in which order, and what was found.

| file             | what it says                                                                               |
|------------------|--------------------------------------------------------------------------------------------|
| `study.py`       | the points of a study: networks, series, numbers of ranks, and the settings of each        |
| `settings.py`    | which settings there are, and what they may hold                                           |
| `order.py`       | which point is measured next, and when a point has been measured often enough              |
| `runs.py`        | one run of a point, as a record; a run that fails is a record with its reason              |
| `environment.py` | what a run was measured on, so that only what compares is put together                     |
| `records.py`     | the file of a study, a record a line                                                       |
| `median.py`      | the confidence interval of a median                                                        |
| `summary.py`     | the records of each point as one row: time, interval, speedup, efficiency, bytes, memory   |
| `comparison.py`  | which points of two studies differ by more than noise                                      |
| `predicted.py`   | the same records, predicted for any machine and number of ranks                            |
| `table.py`       | the rows as a table for the terminal                                                       |
| `tidy.py`        | the records as a table for other tools: a row a point and repeat, units in the names       |
| `page.py`        | the page of a study: one HTML file, of `page_tables.py` and `page_commands.py`             |
| `reported.py`    | what reports say of layers and collectives, checked                                        |
| `growth.py`      | sums of terms c p^i log2(p)^j                                                              |
| `volumes.py`     | what a curve sends, by closed formulas, as such sums                                       |
| `laws.py`        | the serial fractions of Amdahl and of Karp and Flatt                                       |
| `terms.py`       | where a prediction is wrong: the terms of measured and of predicted steps                  |
| `fit.py`         | a machine fitted to the points on few ranks, which predicts those on more                  |
| `extrap.py`      | a curve in the text format of Extra-P, and the models that Extra-P finds                   |
| `hatchet.py`     | the profile of each run as a call tree for Hatchet and Thicket                             |
"""
