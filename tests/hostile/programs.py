"""Programs of the project in this process, which is a child's: they end it by SystemExit, as a shell sees them end."""

import os
import sys
from pathlib import Path


def program(*words):
    """A reader that is `gridgrad WORD ..` in a folder; returns what was printed."""

    def read(folder):
        from gridgrad.experiments.common.command import main

        os.chdir(folder)
        sys.argv = ["gridgrad", *words]
        try:
            main()
        except SystemExit as ending:
            if ending.code:
                raise
        sys.stdout.flush()
        return (Path(folder).parent / "printed").read_text(errors="replace")

    return read
