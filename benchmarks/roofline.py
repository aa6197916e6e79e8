"""How near coding is to what the device could do: patches of 60,000 colour images on one GPU.

    python benchmarks/roofline.py                          # 60,000 images, 2.94 million rows
    python benchmarks/roofline.py --atoms smooth           # a dictionary harder to code with
    python benchmarks/roofline.py --images 20 --device cpu

Every image is 49 rows of 192 features (patches of 8×8×3): 8 of 256 random atoms and noise,
three quarters of the entries missing. They are coded to relative duality gaps of 1e-3, which are
computed again in float64 for a sample. One line of JSON says how long that took (median of 5
after a warm-up), and what it would take to read every row and write every code once at the
bandwidth of a copy (`memory_*`), and to take as many steps at the rate of a large matrix product
(`tf32_*`, `float16_*`; the steps multiply in float16 on a GPU). `plain_seconds` is the same solver
with steps in plain torch, scaled up from fewer images. On a CPU the solver is coordinate descent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from halfseen.boundary import choose_device
from halfseen.coding import MAX_ITER, MaskedLasso, make_solver
from halfseen.solvers import fista

ROWS_PER_IMAGE, SIDE, N_ATOMS = 49, 8, 256
N_FEATURES = 3 * SIDE**2
ATOMS_PER_ROW, NOISE, MISSING = 8, 0.02, 0.75
TOL = 1e-3
SAMPLE = 50_000
COPIED = 2**29  # floats
PRODUCT = 8192


def make_problem(n_images: int, kind: str, lam: float, device: torch.device) -> MaskedLasso:
    n_rows = ROWS_PER_IMAGE * n_images
    options = {"generator": torch.Generator(device).manual_seed(0), "device": device}
    dictionary = torch.randn(N_ATOMS, 3, SIDE, SIDE, **options)
    if kind == "smooth":
        wide = F.pad(dictionary, (2, 2, 2, 2), mode="replicate")
        dictionary = F.avg_pool2d(wide, 5, 1) + 0.02 * dictionary
    dictionary = F.normalize(dictionary.flatten(1), dim=1)
    X = NOISE * torch.randn(n_rows, N_FEATURES, **options)
    for _ in range(ATOMS_PER_ROW):
        atoms = torch.randint(N_ATOMS, (n_rows,), **options)
        X += torch.randn(n_rows, 1, **options) * dictionary[atoms]
    observed = torch.rand(n_rows, N_FEATURES, **options) > MISSING
    alpha = lam * observed.float().mean(1)
    return MaskedLasso(X * observed, observed, dictionary, alpha)


def seconds_of(work: Callable[[], object], repeats: int = 5) -> tuple[float, object]:
    """Return the median time of some calls after one that warms up, and the last result."""
    result, seconds = work(), []
    for _ in range(repeats):
        if torch.cuda.is_available():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = work()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
        else:
            begin = time.perf_counter()
            result = work()
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), result


def largest_gap(problem: MaskedLasso, codes: torch.Tensor) -> float:
    """Return the largest gap of a sample of rows, in float64."""
    n_rows = len(codes)
    some = torch.arange(0, n_rows, max(1, n_rows // SAMPLE), device=codes.device)
    return problem.rows(some).to(torch.float64).relative_gap(codes[some].double()).max().item()


def ceilings(device: torch.device) -> dict[str, float]:
    """Return what the device does at best: bytes copied and operations in products, a second."""
    values = torch.randn(COPIED, device=device)
    target = torch.empty_like(values)
    copying, _ = seconds_of(lambda: target.copy_(values), 10)
    matrix = torch.randn(PRODUCT, PRODUCT, device=device)
    half = matrix.half()
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    in_tf32, _ = seconds_of(lambda: matrix @ matrix, 10)
    torch.backends.cuda.matmul.allow_tf32 = allowed
    in_half, _ = seconds_of(lambda: half @ half, 10)
    operations = 2 * PRODUCT**3
    return {
        "memory": 8 * COPIED / copying,
        "tf32": operations / in_tf32,
        "float16": operations / in_half,
    }


def plain_seconds(problem: MaskedLasso, n_images: int) -> float:
    """Return the seconds with steps in plain torch, for all rows."""
    some = problem.rows(slice(0, ROWS_PER_IMAGE * n_images))
    fastest, fista.fastest_advance = fista.fastest_advance, lambda dictionary: fista.advance
    seconds, _ = seconds_of(lambda: fista.Fista().solve(some, None, TOL, MAX_ITER), 1)
    fista.fastest_advance = fastest
    return seconds * len(problem.X) / len(some.X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--atoms", choices=("gaussian", "smooth"), default="gaussian")
    parser.add_argument("--lam", type=float, default=0.1, help="alpha over the observed fraction")
    parser.add_argument("--plain-images", type=int, default=4_000, help="for the plain steps")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    problem = make_problem(arguments.images, arguments.atoms, arguments.lam, device)
    n_rows, solver = len(problem.X), make_solver("auto", device)
    seconds, solution = seconds_of(lambda: solver.solve(problem, None, TOL, MAX_ITER))
    n_iter = solution.n_iter.double()
    n_bytes = n_rows * (N_FEATURES * (4 + 1) + N_ATOMS * 4)
    line = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "images": arguments.images,
        "atoms": arguments.atoms,
        "lam": arguments.lam,
        "rows": n_rows,
        "seconds": seconds,
        "mean_steps": n_iter.mean().item(),
        "most_steps": int(n_iter.max().item()),
        "non_zeros": (solution.codes != 0).sum().item() / n_rows,
        "largest_gap_reported": solution.gap.max().item(),
        "largest_gap_float64": largest_gap(problem, solution.codes),
        "bytes": n_bytes,
    }
    del solution
    if device.type == "cuda":
        best = ceilings(device)
        operations = 4 * N_FEATURES * N_ATOMS * n_iter.sum().item()
        line |= {
            "memory_bytes_per_second": best["memory"],
            "memory_seconds": n_bytes / best["memory"],
            "memory_fraction": n_bytes / best["memory"] / seconds,
            "operations": operations,
            "operations_per_second": operations / seconds,
            "tf32_operations_per_second": best["tf32"],
            "tf32_fraction": operations / seconds / best["tf32"],
            "float16_operations_per_second": best["float16"],
            "float16_fraction": operations / seconds / best["float16"],
        }
        plain = plain_seconds(problem, min(arguments.images, arguments.plain_images))
        line |= {"plain_seconds": plain, "plain_over_it": plain / seconds}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
