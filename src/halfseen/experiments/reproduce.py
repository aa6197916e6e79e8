"""Running the cells of one experiment that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from halfseen.experiments import experiment
from halfseen.experiments.runner import Context, run


def reproduce(
    name: str,
    *,
    seeds: int = 10,
    device: str = "auto",
    data: Path | None = None,
    out: Path = Path("results"),
    only: Iterable[str] = (),
    variant: Iterable[str] = (),
    small: bool = False,
    say: Callable[[str], None] = print,
) -> int:
    """Run the cells of an experiment that are not done yet; return how many failed.

    Parameters
    ----------
    name : str
        One of `halfseen.experiments.NAMES`.
    seeds : int
        How many seeds every cell has.
    device : str
    data : Path, optional
        Folder with mnist.npz, fashion_mnist.npz, cifar10.npz.
    out : Path
        Folder of the rows: NAME.jsonl.
    only : iterable of str
        "KEY=VALUE", such as "dataset=mnist"; a key may come several times.
    variant : iterable of str
        "DATASET=NAME": which copy of a data set this is, for the rows.
    small : bool
        Whether to run a tiny grid, with rows in OUT/small.
    say : callable
        Told what happens.
    """
    module = experiment(name)
    cells = module.cells(seeds, small)
    wanted = _pairs(only, "--only")
    unknown = set(wanted) - set(cells[0])
    if unknown:
        raise ValueError(f"--only knows {', '.join(cells[0])}; got {', '.join(sorted(unknown))}.")
    chosen = [cell for cell in cells if all(_among(cell[k], v) for k, v in wanted.items())]
    if not chosen:
        raise ValueError(f"--only {' '.join(only)} leaves no cell of {len(cells)}.")
    variants = {name: values[-1] for name, values in _pairs(variant, "--variant").items()}
    sets = {cell["dataset"] for cell in cells}
    if not set(variants) <= sets:
        raise ValueError(f"--variant knows {', '.join(sorted(sets))}; got {', '.join(variants)}.")
    folder = out / "small" if small else out  # not among the real rows
    context = Context(data, device, tuple(variants.items()), small, folder, say)
    return run(name, module, chosen, folder, context)


def _among(value, texts: list[str]) -> bool:
    """Say whether a value is one of those that texts name; numbers in any spelling."""
    if isinstance(value, str):
        return value in texts
    return any(text.replace(".", "", 1).isdecimal() and float(text) == value for text in texts)


def _pairs(given: Iterable[str], option: str) -> dict[str, list[str]]:
    """Return what `KEY=VALUE` arguments say; a key may come several times."""
    found: dict[str, list[str]] = {}
    for pair in given:
        name, mark, value = pair.partition("=")
        if not mark:
            raise ValueError(f"{option} takes KEY=VALUE; got {pair!r}.")
        found.setdefault(name, []).append(value)
    return found
