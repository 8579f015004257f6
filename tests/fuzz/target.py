"""What a target is, and what its reader makes of one input."""

import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gridgrad.experiments.common.options import user_input
from gridgrad.parallel.job.run import UserError, one_line

LONGEST = 1500  # characters of a clear line: some list what is accepted


@dataclass(frozen=True)
class Target:
    """Something of the product that reads what users give.

    valid: a function to a tuple of inputs, each bytes, that must be read without an error. damage: a function of one of them
    to a strategy of damaged ones. read: reads the file at a path as a program does, and uses what it has read as far as it
    takes to notice that it is no good. file: the name of the file, in a folder of its own. around: puts other files into that
    folder. says: other words than
    the name of the file, one of which each error may say instead. examples: a function to inputs that were once not read well.
    weight: of the inputs of this target, where others have 1.
    """

    name: str
    valid: Callable[[], tuple]
    damage: Callable
    read: Callable
    file: str = "input"
    around: Callable = lambda folder: None
    says: tuple = ()
    examples: Callable = tuple
    weight: float = 1.0


def of_text(read):
    """A reader of a file that reads it as a text from the command line, and passes that to `read`."""
    return lambda path: read(path.read_bytes().decode(errors="surrogateescape"))


def judged(target, content, folder):
    """("read" or "refused" or "failed", words) for an input; a failure is anything but a result and one clear line.

    The words up to the first colon and a space are the same for the same failure.
    """
    with tempfile.TemporaryDirectory(dir=folder) as own:
        target.around(Path(own))
        path = Path(own) / target.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        try:
            with user_input():
                target.read(path)
        except UserError as error:
            return unclear(target, one_line(error), origin(error.__context__ or error))
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            return "failed", f"{type(error).__name__} in {origin(error)}: {one_line(error)[:200]}"
    return "read", ""


def unclear(target, line, where):
    """("refused", the line), or a failure if it does not say what is wrong or where."""
    if not any(words in line for words in (Path(target.file).name, *target.says)):
        return "failed", f"does not name the file, in {where}: {line[:200]}"
    if len(line) > LONGEST:
        return "failed", f"too long a line, in {where}: {line[:200]}"
    return "refused", line


def origin(error):
    """The innermost line of the product behind an exception, as file:line."""
    frames = traceback.extract_tb(error.__traceback__)
    root = str(Path(__file__).parents[2])
    own = [frame for frame in frames if frame.filename.startswith(root) and "/.venv" not in frame.filename]
    return f"{own[-1].filename.removeprefix(root + '/')}:{own[-1].lineno}" if own else "no file"
