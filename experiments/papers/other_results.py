"""Results of other programs that are kept, and that decide claims or stand beside the numbers of a paper."""

from pathlib import Path

from gridgrad.nn.files.documents import UNFIT, content_of_file


def kept(path, choose=lambda content: content):
    """(what a function finds in a file of JSON, ""), or (None, why there is nothing, a sentence without its stop).

    choose: takes the content of the file; what it raises for content that it does not expect, or StopIteration, is a reason.
    """
    path = Path(path)
    if not path.exists():
        return None, f"there is no {path}"
    try:
        return choose(content_of_file(path)), ""
    except (*UNFIT, StopIteration, OSError) as error:
        return None, f"{path} does not hold what decides this ({type(error).__name__})"


def where(path, versions):
    """The words for the source of a number: the file and the processor."""
    return f"{path}, {versions['processor']}"
