"""A scaling study: what is measured, in which order, and what was found.

`study.py` has settings and points, `runs.py` their order, jobs and file (`turns.py`: a job of several series), `environment.py`
what a run was measured on, `records.py` a record a run, `summary.py` a row a point, with intervals by `statistics.py`.
`predicted.py` makes the same records without a run. `table.py` is for the terminal, `tidy.py` for pandas, `page.py` for a
browser, `export.py` for Extra-P, Hatchet and Thicket; `comparison.py` compares two studies; `model.py` says why points are as
fast as they are, and predicts more ranks from few.
"""
