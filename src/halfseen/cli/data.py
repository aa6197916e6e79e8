"""What commands read: tables, archives of arrays, folders of images, models."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.archives import DAMAGE, read_array, read_arrays, require_proportion
from halfseen.table_files import KINDS, read_frame, split_target

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".npy")
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF")  # Pillow's others include one that runs programs
_OTHER_PICTURES = (".webp", ".gif", ".heic", ".heif", ".avif", ".jp2", ".svg", ".ppm", ".tga")
_MASK = ".mask"
_CHANNELS = (1, 3, 4)  # of usual images
_SURELY_SIDES = 8  # what is as large as this is no number of channels beside a width of those


@dataclass(frozen=True)
class Data:
    """Samples with holes, as they were read.

    Attributes
    ----------
    X : DataFrame or ndarray
    y : ndarray
        Labels; None if there are none.
    names : list of str or None
        Of the files, if these are images.
    whole : DataFrame or None
        The table as it was read, with columns that the model does not take.
    """

    X: Any
    y: Any
    names: list[str] | None = None
    whole: Any = None

    @property
    def is_table(self) -> bool:
        """Whether it has columns with names."""
        return hasattr(self.X, "columns")


def read_labelled(path: Path, target: str | None, missing: list[str]) -> Data:
    """Return samples with labels, to learn from.

    Parameters
    ----------
    path : Path
        A table (.csv, .tsv, .parquet), an archive (.npz) with the array X and labels, or a
        folder with one folder of images per class.
    target : str or None
        The column, or the array, of labels. An archive has y by default.
    missing : list of str
        What else stands for a missing value.
    """
    if path.is_dir():
        data = _read_folder(path, missing)
        if data.y is None:
            raise ValueError(f"{str(path)!r} has no labels; put images into one folder per class.")
        return _with_channels_first(data, path)
    if path.suffix.lower() == ".npz":
        return _with_channels_first(_read_archive(path, target or "y", missing), path)
    if target is None:
        raise ValueError(f"{str(path)!r} is a table; name its column of labels with --target.")
    X, y = split_target(read_frame(path, target, missing, as_text=True), target, path)
    return Data(X, y)


def read_new(path: Path, missing: list[str], like: Any, target: str | None = None) -> Data:
    """Return samples to predict or complete, with labels only if a target is named.

    Parameters
    ----------
    path : Path
        See `read_labelled`; a folder may also have its images directly in it.
    missing : list of str
    like : classifier
        That they are for: a table must have its columns, and may have others.
    target : str, optional
        The column, or the array, of true labels; anything for folders that are labels.
    """
    arrays = path.is_dir() or path.suffix.lower() == ".npz"
    missing = [*missing, *getattr(like, "missing_values_", ())]
    if arrays and hasattr(like, "encoder_"):
        raise ValueError(f"{str(path)!r} holds arrays; this model was trained on a table.")
    if path.is_dir():
        data = _read_folder(path, missing)
        return data if target else replace(data, y=None)
    if path.suffix.lower() == ".npz":
        return _read_archive(path, target, missing)
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"{str(path)!r} must end in .csv, .tsv, .parquet or .npz, or be a folder.")
    if not hasattr(like, "encoder_"):
        raise ValueError(f"{str(path)!r} is a table; this model was trained on arrays or images.")
    known = getattr(like, "feature_names_in_", None)
    frame, y = read_frame(path, target, missing, as_text=True, columns=known), None
    whole = frame
    if target is not None:
        frame, y = split_target(frame, target, path)
    names = list(getattr(like, "feature_names_in_", frame.columns))
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise ValueError(
            f"{str(path)!r} has no column {', '.join(map(repr, absent))}, which the model was "
            f"trained with; its columns are {', '.join(map(repr, frame.columns))}."
        )
    if len(frame) == 0:
        raise ValueError(f"{str(path)!r} has no rows.")
    return Data(frame[names], y, whole=whole)


def load_model(path: Path, device: str) -> Any:
    """Return the classifier in a model file, whichever of the two kinds it is."""
    from halfseen import SparseCodingClassifier, TableClassifier, storage
    from halfseen.classifier_file import KIND, from_tree
    from halfseen.table_classifier import KIND as TABLE_KIND

    kind, tree = storage.read_any(path, (KIND, TABLE_KIND))
    if kind == TABLE_KIND:
        return TableClassifier.from_tree(tree, path, None, device)
    return from_tree(SparseCodingClassifier, tree, path, None, device)


def _read_archive(path: Path, target: str | None, missing: list[str]) -> Data:
    wanted = ("X",) if target is None else ("X", target)
    try:
        arrays, names = read_arrays(path, (*wanted, "observed"))
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise ValueError(f"{str(path)!r} is not an archive of arrays: {error}") from error
    for name in wanted:
        if name not in arrays:
            raise ValueError(
                f"{str(path)!r} has no array {name!r}; its arrays are "
                f"{', '.join(map(repr, names)) or 'none'}."
            )
    X, y = arrays["X"], None if target is None else arrays[target]
    if X.ndim < 2 or 0 in X.shape:
        raise ValueError(
            f"the array 'X' of {str(path)!r} must have the shape (n_samples, ...), none of it 0; "
            f"got {X.shape}."
        )
    if y is not None and y.shape != X.shape[:1]:
        raise ValueError(
            f"the array {target!r} of {str(path)!r} must have {len(X)} labels, as 'X' has samples; "
            f"got the shape {y.shape}."
        )
    if X.dtype.kind not in "fiub":
        raise ValueError(f"the array 'X' of {str(path)!r} must have numbers; got {X.dtype}.")
    X = X.astype(np.promote_types(X.dtype, np.float32))
    if "observed" in arrays:
        observed = arrays["observed"]
        if observed.shape != X.shape:
            raise ValueError(
                f"the array 'observed' of {str(path)!r} must have the shape of 'X', {X.shape}; "
                f"got {observed.shape}."
            )
        X = np.where(observed.astype(bool), X, np.nan)
    return Data(_without(X, missing), y)


def _refuse_deep_pictures(folder: Path) -> None:
    """Refuse pictures in folders of folders; links to such folders are not followed."""
    for kind in sorted(folder.iterdir()):
        for place, _, names in os.walk(kind):
            path = Path(place)
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            for name in [] if hidden or path == kind else sorted(names):
                if Path(name).suffix.lower() in PICTURES and not name.startswith("."):
                    raise ValueError(
                        f"{str(path / name)!r} lies too deep: images are read from "
                        f"{str(folder)!r} and from the folders in it."
                    )


def _read_folder(folder: Path, missing: list[str]) -> Data:
    """Read images; those in folders have the names of the folders as labels."""
    files = sorted(
        path
        for path in (*folder.glob("*"), *folder.glob("*/*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and (path.is_file() or not path.exists())  # a link to nothing is told of
    )
    _refuse_deep_pictures(folder)
    paths = [
        path for path in files if path.suffix.lower() in PICTURES and not path.stem.endswith(_MASK)
    ]
    _refuse_what_would_be_left_out(files, paths)
    if not paths:
        raise ValueError(f"{str(folder)!r} has no images ({', '.join(PICTURES)}).")
    in_folders = [path.parent != folder for path in paths]
    if any(in_folders) and not all(in_folders):
        raise ValueError(
            f"{str(folder)!r} has images both directly and in folders, such as "
            f"{str(paths[in_folders.index(False)])!r}; labels are the names of folders."
        )
    masks = [mask for mask in map(_mask_of, paths) if mask.is_file()]
    stored = [path for path in (*paths, *masks) if path.suffix.lower() != ".npy"]
    n_pixels, n_stored = sum(map(_n_pixels, stored)), sum(path.stat().st_size for path in stored)
    with _reading(folder, "images"):
        require_proportion(n_pixels, n_stored)
    images = [_read_image(path) for path in paths]
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            raise ValueError(
                f"images must have one shape; {str(paths[0])!r} has {images[0].shape}, "
                f"{str(path)!r} has {image.shape}."
            )
    y = np.array([path.parent.name for path in paths]) if all(in_folders) else None
    names = [path.relative_to(folder).as_posix() for path in paths]
    return Data(_without(np.stack(images), missing), y, names)


def _refuse_what_would_be_left_out(files: list[Path], paths: list[Path]) -> None:
    """Refuse images in other formats, and masks of no image."""
    masks = {_mask_of(path) for path in paths}
    for path in files:
        if path.suffix.lower() in _OTHER_PICTURES:
            raise ValueError(
                f"{str(path)!r} is none of {', '.join(PICTURES)}; convert it, or remove it."
            )
        if path.name.endswith(f"{_MASK}.png") and path not in masks:
            raise ValueError(f"{str(path)!r} is the mask of an image that is not there.")


def _read_image(path: Path) -> np.ndarray:
    """Return an image as (channels, height, width) from 0 to 1, NaN in its holes.

    Holes are NaN in a .npy file, transparent pixels, or black in NAME.mask.png beside it.
    """
    if path.suffix.lower() == ".npy":
        with _reading(path, "an image"):
            image = np.asarray(read_array(path), dtype=np.float32)
            if image.ndim not in (2, 3):
                raise ValueError(f"an image has 2 or 3 axes; got {image.ndim}")
            image = image[None] if image.ndim == 2 else image
    else:
        with _opened(path) as picture:
            _turn_upright(picture)
            image = _pixels(picture)
    mask = _mask_of(path)
    if mask.is_file():
        with _opened(mask) as picture:
            _turn_upright(picture)
            seen = np.asarray(picture.convert("L")) > 0
        if seen.shape != image.shape[1:]:
            raise ValueError(
                f"{str(mask)!r} must have the {image.shape[1:]} pixels of its image; got "
                f"{seen.shape}."
            )
        image = np.where(seen, image, np.float32(np.nan))
    return image


def _with_channels_first(data: Data, path: Path) -> Data:
    """Refuse what are hardly images of many channels, a few pixels wide."""
    shape = data.X.shape[1:]
    if len(shape) == 3 and shape[2] in _CHANNELS and min(shape[:2]) >= _SURELY_SIDES:
        raise ValueError(
            f"images in {str(path)!r} must have the shape (channels, height, width); {shape} looks "
            f"as if their channels were last. Write them with .transpose(0, 3, 1, 2), one with "
            f".transpose(2, 0, 1)."
        )
    return data


def _mask_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}{_MASK}.png")


def _n_pixels(path: Path) -> int:
    """Return how many bytes a picture says to have, uncompressed."""
    with _opened(path) as picture:
        return picture.width * picture.height * len(picture.getbands())


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a picture; what its format says is not looked into before."""
    from PIL import Image

    with _reading(path, "an image"), warnings.catch_warnings():
        warnings.simplefilter("error")  # that it is very large, or damaged and read in part
        for beside_pixels in ("Metadata Warning", "Corrupt EXIF"):
            warnings.filterwarnings("ignore", beside_pixels)
        try:
            # Of a path, Pillow would map plain TIFFs into memory and scramble those it turns.
            with path.open("rb") as file, Image.open(file, formats=_FORMATS) as picture:
                yield picture
        except (SyntaxError, Image.DecompressionBombError, Warning) as error:
            raise ValueError(error) from error


@contextlib.contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Name the file that cannot be read, whatever its reader found wrong."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(f"{str(path)!r} cannot be read as {what}: {error}") from error


def _turn_upright(picture) -> None:
    """Turn a photograph as viewers show it: cameras note how they were held."""
    from PIL import ImageOps

    picture.load()
    with contextlib.suppress(SyntaxError):  # notes that cannot be read say nothing
        ImageOps.exif_transpose(picture, in_place=True)


def _pixels(picture) -> np.ndarray:
    has_alpha = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
    grey = picture.mode in ("1", "L", "LA")
    if getattr(picture, "n_frames", 1) > 1:
        raise ValueError(f"it has {picture.n_frames} pages; save each as a picture")
    if picture.mode.startswith(("I", "F")):  # 16 bits, or floats, which are as they are
        values = np.asarray(picture)
        if picture.mode == "I" and picture.format == "TIFF":
            raise ValueError("it has whole numbers of 32 bits; save it with 8 or 16, or as .npy")
        clear = values == picture.info["transparency"] if has_alpha else np.False_
        image = values.astype(np.float32) / np.float32(1 if picture.mode == "F" else 65535)
        return np.where(clear, np.float32(np.nan), image)[None]
    converted = picture.convert(("LA" if grey else "RGBA") if has_alpha else "L" if grey else "RGB")
    values = np.asarray(converted, dtype=np.float32)
    values = values[..., None] if values.ndim == 2 else values
    image = values.transpose(2, 0, 1) / 255
    if not has_alpha:
        return np.ascontiguousarray(image)
    return np.where(image[-1] > 0.5, image[:-1], np.float32(np.nan))


def _without(X: np.ndarray, missing: list[str]) -> np.ndarray:
    """Return samples with NaN where numbers stand for a missing value."""
    for text in missing:
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"--missing must be numbers for arrays; got {text!r}.") from None
        X = np.where(number == X, np.nan, X).astype(X.dtype)
    return X
