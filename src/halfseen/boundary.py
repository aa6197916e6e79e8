"""The border of the package: checks, NaN → `observed`, numpy ↔ torch, devices.

Numerical code below it gets tensors without NaN and a boolean tensor `observed`; only the
estimators above it know NaN and pandas.
"""

from __future__ import annotations

import math
import numbers
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

_LEAST_DIGITS = 0.01  # of the spread of a feature, which rounding may take
_ROUNDINGS = 16  # that a constant may seem to vary by


def require(settings, name: str, ok: bool, expected: str) -> None:
    """Refuse the value of a parameter."""
    if not ok:
        raise ValueError(f"{name} must be {expected}; got {getattr(settings, name)!r}.")


def is_number(value) -> bool:
    """Say whether a value is a finite real number."""
    value = plain(value)  # a float32 has less room
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def is_whole(value, least: int = 1) -> bool:
    """Say whether a value is a whole number of some size."""
    integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return integer and int(value) >= least


def choose_device(device: str | torch.device, like: object = None) -> torch.device:
    """Turn the `device` parameter into a device.

    Parameters
    ----------
    device : str or torch.device
        ``"auto"`` is the device of `like` if that is a tensor, else a GPU if there is one,
        else the CPU.
    like : object
        The data that will be worked on.
    """
    if not isinstance(device, str) or device != "auto":
        try:
            chosen = torch.device(device)
            # A device that cannot compute, or not in float64 as moments are, fails here.
            torch.ones(1, dtype=torch.float64, device=chosen).item()
            return chosen
        except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"device={device!r} cannot be used here ({reason}); pass 'auto', 'cpu' or a "
                f"device that this torch installation has, such as 'cuda'."
            ) from error
    if isinstance(like, Tensor):
        return like.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def learning_dtype(given: np.dtype | torch.dtype, device: torch.device) -> torch.dtype:
    """Return the precision to learn in: that of the data, but float32 on a GPU.

    Atoms and weights need no more digits, and float64 is far slower there.
    """
    wide = given.itemsize == 8 and device.type == "cpu"
    return torch.float64 if wide else torch.float32


def require_digits(centre: np.ndarray, spread: Any, advice: str) -> None:
    """Refuse float64 data whose values are one and the same in float32.

    Parameters
    ----------
    centre : ndarray of the shape of one sample
        About which value a feature varies.
    spread : float or array of that shape
        By how much; what is no more than rounding of the centre does not count.
    advice : str
        What to do beside subtracting the centre.
    """
    size, spread = np.abs(centre), np.broadcast_to(spread, centre.shape)
    lost = size * np.finfo(np.float32).eps > _LEAST_DIGITS * spread
    lost &= spread > _ROUNDINGS * np.finfo(np.float64).eps * size
    if lost.any():
        place = tuple(np.argwhere(lost)[0])
        raise ValueError(
            f"X varies by {spread[place]:.2g} about {centre[place]:.2g} in feature "
            f"{', '.join(map(str, place))}, too little for float32; subtract its mean, or {advice}."
        )


def finite_floats(
    values: Any, name: str, *, holes: bool = False, device: torch.device | None = None
) -> Tensor:
    """Return numbers as a floating-point tensor, checked; NaN only where `holes` allows it.

    float32 and narrower floats become float32, everything else float64. The result may share
    memory with the input and must not be written to. With `device` it is moved there first,
    so that the checks run where they are fast.
    """
    if isinstance(values, Tensor):
        tensor = values.detach()
        refuse_no_values(tensor, name)
        if tensor.is_complex():
            raise ValueError(f"{name} is complex; real numbers were expected.")
    else:
        array = _numeric_array(values, name)
        if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
            array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        if not array.flags.writeable:
            array = array.copy()
        tensor = torch.from_numpy(array)
    tensor = tensor.to(device)
    narrow = tensor.is_floating_point() and tensor.dtype.itemsize <= 4
    tensor = tensor.to(torch.float32 if narrow else torch.float64)
    check_finite(tensor, name, holes)
    return tensor


def tensors_with_holes(
    X: Any, name: str = "X", device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Return values (0 in the holes) and `observed` of an array in which NaN is a hole."""
    X = finite_floats(X, name, holes=True, device=device)
    observed = ~torch.isnan(X)
    return torch.where(observed, X, 0), observed


def array_of(tensor: Tensor, name: str) -> np.ndarray:
    """Return the values of a tensor; numpy has no bfloat16."""
    refuse_no_values(tensor, name)
    tensor = tensor.detach().cpu()
    narrow = tensor.is_floating_point() and tensor.dtype.itemsize < 4
    return (tensor.float() if narrow else tensor).numpy()


def refuse_no_values(tensor: Tensor, name: str) -> None:
    """Refuse tensors that have no values, or not all of them."""
    if tensor.is_meta or tensor.layout is not torch.strided:
        kind = "on the device meta" if tensor.is_meta else f"with the layout {tensor.layout}"
        advice = "" if tensor.is_meta else f"; pass {name}.to_dense()"
        raise ValueError(
            f"{name} is a tensor {kind}; one with all its values was expected{advice}."
        )


def checked_codes(codes: Any, n_tiles: int, n_atoms: int, method: str) -> Tensor:
    """Return codes that `method` gave out as a tensor of shape (n_samples, n_tiles, n_atoms)."""
    given = finite_floats(codes, "codes")
    expected = (n_atoms,) if n_tiles == 1 else (n_tiles, n_atoms)
    if given.shape[1:] != expected:
        raise ValueError(
            f"codes of shape (n_samples, {', '.join(map(str, expected))}) were expected; got "
            f"{tuple(given.shape)}. Pass what {method}() returned."
        )
    return given.reshape(len(given), n_tiles, n_atoms)


def check_squares(values: Tensor, name: str) -> None:
    """Refuse rows so large or so small that their squared norm leaves the range of the dtype."""
    squares = values.square().sum(1)
    suspect = ~torch.isfinite(squares) | (squares < torch.finfo(values.dtype).tiny)
    size = values[suspect].abs().amax(1)
    size = size[size > 0]  # a row of zeros is fine
    if len(size) == 0:
        return
    worst = size[0].item()
    wider = " or pass float64" if values.dtype == torch.float32 else ""
    raise ValueError(
        f"{name} has a row whose largest value is {worst:g}: its square is out of the range of "
        f"{str(values.dtype).removeprefix('torch.')}; rescale it{wider}."
    )


def require_room(learned: np.ndarray, dtype: np.dtype) -> None:
    """Refuse samples whose precision has no room for numbers that were learned."""
    largest = np.abs(learned, where=np.isfinite(learned), out=np.zeros_like(learned)).max()
    if largest > np.finfo(dtype).max:
        raise ValueError(
            f"values up to {largest:g} were learned, for which {dtype} has no room; pass samples "
            f"as {learned.dtype}."
        )


def like_input(result: Tensor, given: object) -> np.ndarray | Tensor:
    """Return a result as the caller gave the data: torch on its device, else numpy."""
    if isinstance(given, Tensor):
        return result.to(given.device)
    return result.cpu().numpy()


def seed_from(random_state: int | np.random.RandomState | None) -> int:
    """Turn the `random_state` parameter into a seed without touching global state.

    None is different every time; a RandomState is drawn from.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if is_whole(random_state, least=0) and random_state < 2**32:
        return int(random_state)
    raise ValueError(
        f"random_state must be None, a whole number from 0 to 2**32 - 1 or a numpy RandomState; "
        f"got {random_state!r}."
    )


def plain(value: Any) -> Any:
    """Return numpy's numbers as Python's; anything else passes through."""
    return value.item() if isinstance(value, np.generic) else value


def without_mask(values: Any) -> Any:
    """Turn the mask of a numpy masked array into NaN; anything else passes through."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.result_type(values.dtype, np.float32)), np.nan)
    return values


def _numeric_array(values: Any, name: str) -> np.ndarray:
    if hasattr(values, "toarray"):
        raise ValueError(f"{name} is a sparse matrix; pass a dense array: {name}.toarray().")
    array = np.asarray(without_mask(values))
    if array.dtype.kind == "O":
        if any(isinstance(entry, complex | np.complexfloating) for entry in array.flat):
            raise ValueError(f"{name} is complex; real numbers were expected.")
        try:
            array = without_na(array).astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} has entries that are not numbers ({error}); encode text and "
                f"categories as numbers first, holes as NaN."
            ) from error
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} has dtype {array.dtype}; numbers were expected. Encode text and "
            f"categories as numbers first, holes as NaN."
        )
    if (array.dtype.kind == "f" and array.dtype.itemsize > 8) or array.dtype == np.uint64:
        array = array.astype(np.float64)
    return array


def without_na(array: np.ndarray) -> np.ndarray:
    """Return an array of objects with NaN where it has pandas' NA, which is no number."""
    pandas = sys.modules.get("pandas")
    return array if pandas is None else np.where(pandas.isna(array), np.nan, array)


def check_finite(tensor: Tensor, name: str, holes: bool) -> None:
    """Refuse infinities and, unless `holes` allows it, NaN; the error says where."""
    wrong = torch.isinf(tensor) if holes else ~torch.isfinite(tensor)
    if not wrong.any():
        return
    place = tuple(wrong.nonzero()[0].tolist())
    value = tensor[place].item()
    advice = "mark missing values with NaN" if holes else "it must be finite"
    raise ValueError(f"{name} contains {value} at index {place}; {advice}.")
