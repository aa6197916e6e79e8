"""Files that are written whole or not at all, and what to say when a disk is full."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_MOST_BYTES = 200  # of a name that is made longer; a disk takes 255


def write_whole(path: str | os.PathLike, write: Callable[[Path], object]) -> None:
    """Have a file written beside its place and move it there when it is complete on the disk.

    Parameters
    ----------
    path : path
    write : callable
        Writes the file it is given; the name has the ending of `path`. Who may read a file that was
        there stays as it was.
    """
    path = _linked(path)  # a link stays a link
    require_folder(path)
    _remove_abandoned(path)
    with room_is_told(path), _new_beside(path) as temporary:
        try:
            if path.exists():  # who may read it stays as it was
                temporary.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWUSR)
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def room_is_told(path: Path) -> contextlib.AbstractContextManager[None]:
    """Say which file it was that a disk had no room for."""
    return full_disk_is_told(
        f"{str(path)!r} could not be written",
        "What was there before is unchanged; make room, or choose a place on another disk",
    )


@contextlib.contextmanager
def full_disk_is_told(what: str, advice: str) -> Iterator[None]:
    """Say what it was that a disk had no room for, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        reason = os.strerror(error.errno)
        raise OSError(error.errno, f"{what}: {reason}. {advice}") from error


@contextlib.contextmanager
def _new_beside(path: Path) -> Iterator[Path]:
    """Yield the name of a new file; it is locked, which says that somebody is writing it."""
    while True:
        temporary = path.with_name(f".{secrets.token_hex(8)}.{_ending(path)}")
        with temporary.open("xb") as file:
            try:
                _lock(file)
            except (ImportError, OSError):
                break  # there are no locks here, and so nothing is taken for abandoned
            if os.fstat(file.fileno()).st_nlink:  # nobody was faster
                yield temporary
                return
    yield temporary


def _ending(path: Path) -> str:
    """Return the name of a file, without its beginning where there is room for no longer one."""
    return os.fsencode(path.name)[-_MOST_BYTES:].decode(errors="ignore")


def _remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed left beside a file: nobody holds its lock."""
    for left in list(path.parent.glob(f".{'[0-9a-f]' * 16}.{glob.escape(_ending(path))}")):
        with contextlib.suppress(ImportError, OSError), left.open("rb+") as file:
            _lock(file, wait=False)
            left.unlink()


def _lock(file, wait: bool = True) -> None:
    import fcntl  # not on Windows

    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _linked(path: str | os.PathLike) -> Path:
    """Return where a path leads to, through all links."""
    try:
        return Path(path).resolve()
    except RuntimeError as error:  # what Python says of links in a circle, up to 3.12
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def require_folder(path: str | os.PathLike) -> None:
    """Refuse a path to write to whose folder is not there, or at which there is no file."""
    folder = _linked(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; make it first.")
    refuse_what_is_no_file(path)


def refuse_what_is_no_file(path: str | os.PathLike) -> None:
    """Refuse a folder, a pipe or a device in the place of a file; there may be nothing."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; a file was expected.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{str(path)!r} is a pipe or a device; a file was expected.")
