"""The folder of the data files, and downloading them."""

import hashlib
import os
from pathlib import Path

from platformdirs import user_cache_path

from gridgrad.nn.files.whole_files import written_whole

VARIABLE = "GRIDGRAD_DATA"


def data_directory(option: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the data sets.

    Parameters
    ----------
    option : path, optional
        The folder, if somebody has named one; by default that of the variable GRIDGRAD_DATA, else the user's cache.

    Returns
    -------
    Path
        The folder, which need not exist.

    Examples
    --------
    >>> from gridgrad.datasets import data_directory
    >>> data_directory("my/data").as_posix()
    'my/data'
    """
    return Path(os.path.expanduser(option or os.environ.get(VARIABLE) or user_cache_path("gridgrad")))


def find(folders, names):
    """The first existing file of these names in these folders, or None."""
    return next((folder / name for name in names for folder in folders if (folder / name).is_file()), None)


def fingerprint(folder, names):
    """A text that changes when one of these files in `folder` does: of their names, sizes and times. OSError if one lacks."""
    digest = hashlib.sha256()
    for name in names:
        found = os.stat(os.path.join(folder, name))
        digest.update(os.fsencode(f"{name} {found.st_size} {found.st_mtime_ns}\n"))
    return digest.hexdigest()


def download(url, checksum, target, what):
    """Fetch `url` to `target`; OSError that says where to put the file if that fails. checksum: "md5:.." or "sha1:.."."""
    import pooch  # here, because it takes a while and few runs download anything

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=os.isatty(2), timeout=30)
    try:
        with written_whole(target) as beside:  # pooch alone makes files that nobody else may read
            pooch.retrieve(url, checksum, fname=beside.name, path=beside.parent, downloader=downloader)
    except Exception as error:  # of requests, urllib3, the file system, or pooch for a wrong checksum
        reason = " ".join(str(error).split())[:120]
        raise OSError(
            f"{what}: no file {target}, and the download from {url} failed ({type(error).__name__}: {reason}); "
            f"fetch it elsewhere and put it there, or point --data-dir or {VARIABLE} at the folder that has it"
        ) from None
