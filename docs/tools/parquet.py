"""The tidy table of a study as Parquet: `python docs/tools/parquet.py FILE.jsonl FILE.parquet`."""

import argparse

from gridgrad.experiments.scaling import records, tidy


def main():
    parser = argparse.ArgumentParser(description="Write the runs of a study as Parquet, a row a point of a curve and repeat.")
    parser.add_argument("reports", metavar="FILE.jsonl", help="what gridgrad sweep wrote")
    parser.add_argument("out", metavar="FILE.parquet", help="the file to write")
    args = parser.parse_args()

    import pandas  # only after the options: pyarrow is needed too

    rows = tidy.table(records.gather([args.reports]))
    pandas.DataFrame(rows).convert_dtypes().to_parquet(args.out)
    print(f"{len(rows)} rows written to {args.out}")


if __name__ == "__main__":
    main()
