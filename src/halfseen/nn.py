"""`SparseCompletion`: a PyTorch layer that takes tensors with holes and completes them.

The codes are the minimisers of a lasso per tile, found by the fastest solver at hand, so
training and test codes are made in the same way. Derivatives come from the condition that
the minimum satisfies, not from the iterations that led to it (`implicit.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfseen.boundary import is_number, is_whole
from halfseen.coding import MAX_ITER, MaskedLasso, Solver, check_tolerance, make_solver
from halfseen.first_dictionary import start_from_array
from halfseen.implicit import differentiable_codes
from halfseen.objective import SCALINGS, lasso_alpha
from halfseen.tilings import Tiling, checked_layout, cut, put_together

OUTPUTS = ("completed", "reconstruction")


class Completion(NamedTuple):
    """What `SparseCompletion` knows of a batch.

    Attributes
    ----------
    completed : Tensor of shape (n_samples, *sample_shape)
        Observed values kept, holes from the reconstruction.
    reconstruction : Tensor of shape (n_samples, *sample_shape)
    codes : Tensor of shape (n_samples, n_tiles, n_atoms)
    """

    completed: Tensor
    reconstruction: Tensor
    codes: Tensor


class SparseCompletion(nn.Module):
    """Complete tensors with holes by sparse coding, differentiably in the dictionary.

    ``nn.Sequential(SparseCompletion(...), network)`` is a network for data with NaN. The
    loss of the network reaches the dictionary through the codes, by `backward`: there are no
    second derivatives and no transforms of torch.func.

    Parameters
    ----------
    tiling : Tiling
        How a sample is cut: ``Whole()``, ``Channels()`` or ``Patches(size, stride)``.
    n_atoms : int
        Atoms of the dictionary.
    sample_shape : tuple of int
        Shape of one sample, such as ``(3, 32, 32)``.
    lambda_rec, lambda_l1 : float
        The paper's λ1 and λ2. With M of its N features observed, a sample is coded by
        min ½‖observed ⊙ (x − s·dictionary)‖² + alpha·‖s‖₁ with
        alpha = lambda_l1 / (2·lambda_rec·M). By default alpha is ½ where half the features
        are observed, which suits values of variance 1.
    rec_scaling : {"share", "inverse"}
        With "inverse" alpha = lambda_l1·M / (2·lambda_rec·N²) instead, as in the authors' code:
        codes of samples with few holes are shrunk as much as those of samples with many.
    output : {"completed", "reconstruction"}
        What `forward` returns.
    n_gradient_steps : int
        Conjugate-gradient steps for the derivative of the codes; with as many as a code has
        non-zeros it is exact. 0: codes are constants.
    positive : bool
        Restrict codes to s ≥ 0.
    tol : float
        Relative duality gap at which a code is finished, see `sparse_encode`.
    solver : str or Solver
        See `sparse_encode`. Codes of a Solver object are constants to the gradient.
    device, dtype
        Of the dictionary, as in other torch modules.

    Attributes
    ----------
    atoms : Parameter of shape (n_atoms, n_tile_features)
        `dictionary` before its atoms are scaled to norm 1. Any optimiser may move it.
    mean : Tensor of shape sample_shape
        Subtracted before coding and added afterwards; zero until `learn` sets it.

    Examples
    --------
    >>> import torch
    >>> from halfseen import Whole
    >>> from halfseen.nn import SparseCompletion
    >>> layer = SparseCompletion(Whole(), n_atoms=6, sample_shape=(4,))
    >>> model = torch.nn.Sequential(layer, torch.nn.Linear(4, 2))
    >>> scores = model(torch.tensor([[1.0, float("nan"), 2.0, 0.5]]))
    >>> scores.sum().backward()
    >>> layer.atoms.grad.shape
    torch.Size([6, 4])
    """

    atoms: nn.Parameter
    mean: Tensor
    layout: Tensor

    def __init__(
        self,
        tiling: Tiling,
        n_atoms: int,
        sample_shape: tuple[int, ...],
        *,
        lambda_rec: float = 1.0,
        lambda_l1: float | None = None,
        rec_scaling: str = "share",
        output: str = "completed",
        n_gradient_steps: int = 20,
        positive: bool = False,
        tol: float = 1e-4,
        solver: str | Solver = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(tiling, Tiling):
            raise ValueError(
                f"tiling must be a tiling such as Whole() or Patches(8, 4); got {tiling!r}."
            )
        if output not in OUTPUTS:
            raise ValueError(f"output must be one of {OUTPUTS}; got {output!r}.")
        if rec_scaling not in SCALINGS:
            raise ValueError(f"rec_scaling must be one of {SCALINGS}; got {rec_scaling!r}.")
        _check_whole("n_atoms", n_atoms, 1)
        _check_whole("n_gradient_steps", n_gradient_steps, 0)
        check_tolerance(tol, MAX_ITER)
        if not isinstance(positive, bool):
            raise ValueError(f"positive must be True or False; got {positive!r}.")
        make_solver(solver, torch.device("cpu"))  # refuses names it does not know
        self.tiling = tiling
        self.sample_shape = tuple(sample_shape) if isinstance(sample_shape, Iterable) else ()
        if not (self.sample_shape and all(is_whole(side) for side in self.sample_shape)):
            raise ValueError(
                f"sample_shape must be a tuple of whole numbers ≥ 1, such as (3, 32, 32); got "
                f"{sample_shape!r}."
            )
        n_features = math.prod(self.sample_shape)
        given = [lambda_rec] if lambda_l1 is None else [lambda_rec, lambda_l1]
        if not all(is_number(weight) and weight > 0 for weight in given):
            raise ValueError(
                f"lambda_rec and lambda_l1 must be positive numbers; got {lambda_rec!r} and "
                f"{lambda_l1!r}."
            )
        self.lambda_rec = float(lambda_rec)
        if lambda_l1 is None:
            lambda_l1 = lambda_rec * n_features * (0.5 if rec_scaling == "share" else 2)
        self.lambda_l1 = float(lambda_l1)
        self.rec_scaling = rec_scaling
        self.output = output
        self.n_gradient_steps = n_gradient_steps
        self.positive = positive
        self.tol = float(tol)
        self.solver = solver
        layout = checked_layout(tiling, self.sample_shape)
        atoms = torch.randn(n_atoms, layout.shape[1], device=device, dtype=dtype)
        self.atoms = nn.Parameter(F.normalize(atoms, dim=1))
        self.register_buffer("layout", layout.to(atoms.device), persistent=False)
        self.register_buffer("mean", atoms.new_zeros(self.sample_shape))

    def _apply(self, fn, recurse: bool = True) -> SparseCompletion:
        super()._apply(fn, recurse)
        self._make_layout()
        return self

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._make_layout()  # loading by assignment may bring the atoms to another device

    def _make_layout(self) -> None:
        """Make the layout again: no file holds it, and `to_empty` would leave anything in it."""
        self.layout = self.tiling.layout(self.sample_shape).to(self.atoms.device)

    @property
    def dictionary(self) -> Tensor:
        """The atoms, each of norm 1; shape (n_atoms, n_tile_features)."""
        return F.normalize(self.atoms, dim=1)

    @property
    def entries_per_sample(self) -> int:
        """How many numbers the tiles and codes of a sample are."""
        n_tiles, n_tile_features = self.layout.shape
        return n_tiles * (n_tile_features + len(self.atoms))

    @torch.no_grad()
    def normalise_atoms(self) -> None:
        """Scale `atoms` themselves to norm 1, after an optimiser's step; changes no output."""
        self.set_atoms(self.dictionary)

    @torch.no_grad()
    def set_atoms(self, atoms: Tensor) -> None:
        """Put other values into `atoms`, of the same shape."""
        self._require_own_atoms()
        self.atoms.copy_(atoms)

    def _require_own_atoms(self) -> None:
        if "atoms" not in self._parameters:  # what is set would be computed again
            raise ValueError(
                "the atoms of this layer are computed from other parameters, by a parametrisation "
                "or pruning, and cannot be set; learn the dictionary before that."
            )

    def learn(self, X, *, n_steps: int = 600, random_state=None) -> SparseCompletion:
        """Start dictionary and mean from samples with holes, without labels.

        A dictionary from here is a far better start than a random one.

        Parameters
        ----------
        X : array or Tensor of shape (n_samples, *sample_shape)
            NaN marks a hole.
        n_steps : int
            Mini-batches learned from, see `SparseCodingImputer`.
        random_state : int, RandomState or None

        Returns
        -------
        self
        """
        _check_whole("n_steps", n_steps, 1)
        self._require_own_atoms()
        start_from_array(self, X, n_steps, random_state)
        return self

    def forward(self, X: Tensor, details: bool = False) -> Tensor | Completion:
        """Complete samples.

        Parameters
        ----------
        X : floating-point Tensor of shape (n_samples, *sample_shape)
            NaN marks a hole. Infinities, and values whose squares are infinite, are not refused,
            which would make a GPU wait: what is computed for such a sample is not finite.
        details : bool
            Return all of a `Completion` instead of the one tensor named by `output`.
        """
        if not isinstance(X, Tensor):
            raise TypeError(f"a Tensor was expected; got {type(X).__name__}.")
        if X.shape[1:] != self.sample_shape or not X.is_floating_point():
            raise ValueError(
                f"a floating-point tensor of shape (n_samples, "
                f"{', '.join(map(str, self.sample_shape))}) was expected; got {X.dtype} of shape "
                f"{tuple(X.shape)}."
            )
        if X.layout is not torch.strided:
            raise ValueError(f"a dense tensor was expected; got {X.layout}: pass X.to_dense().")
        observed = ~torch.isnan(X)
        values = torch.where(observed, X, 0)
        _, reconstruction, codes = self.complete(values, observed)
        # Zero, but NaN where a sample is infinite or so large that its codes mean nothing.
        spoiled = 0 * values.to(codes.dtype).square().flatten(1).sum(1)
        codes = codes + spoiled[:, None, None]
        reconstruction = reconstruction + spoiled.reshape(-1, *(1 for _ in self.sample_shape))
        reconstruction = reconstruction.to(X.dtype)
        # From X itself, so that observed values keep all their digits.
        completed = torch.where(observed, X, reconstruction)
        completion = Completion(completed, reconstruction, codes.to(X.dtype))
        return completion if details else getattr(completion, self.output)

    def complete(
        self,
        values: Tensor,
        observed: Tensor,
        tol: float | None = None,
        solver: str | None = None,
    ) -> Completion:
        """Complete samples given as values (anything finite in the holes) and `observed`."""
        # Codes need float32 or better, whatever autocast and the input say.
        with torch.autocast(values.device.type, enabled=False):
            values = values.to(torch.promote_types(self.atoms.dtype, torch.float32))
            codes = self.encode(values, observed, tol, solver)
            reconstruction = self.reconstruct(codes)
            completed = torch.where(observed, values, reconstruction)
        return Completion(completed, reconstruction, codes)

    def encode(
        self,
        values: Tensor,
        observed: Tensor,
        tol: float | None = None,
        solver: str | None = None,
    ) -> Tensor:
        """Return the codes, shape (n_samples, n_tiles, n_atoms)."""
        chosen = self.solver if solver is None else solver
        dictionary = self.dictionary.to(values.dtype)
        problem = self.problem(values, observed, dictionary)
        tol = self.tol if tol is None else tol
        if isinstance(chosen, str):
            codes = differentiable_codes(problem, chosen, tol, self.n_gradient_steps)
        else:
            with torch.no_grad():
                codes = chosen.solve(problem, None, tol, MAX_ITER).codes
        return codes.reshape(values.shape[0], self.layout.shape[0], codes.shape[1])

    def problem(self, values: Tensor, observed: Tensor, dictionary: Tensor) -> MaskedLasso:
        """Return the lasso problems of all tiles, those of a sample side by side."""
        centred = (values - self.mean.to(values.dtype)) * observed
        tiles, seen = cut(centred, self.layout), cut(observed, self.layout)
        alpha = self.alpha(observed, values.dtype).repeat_interleave(tiles.shape[1])
        return MaskedLasso(
            tiles.flatten(0, 1), seen.flatten(0, 1), dictionary, alpha, self.positive
        )

    def alpha(self, observed: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the weight of the l1 norm for each sample, shape (n_samples,)."""
        return lasso_alpha(observed, self.lambda_rec, self.lambda_l1, dtype, self.rec_scaling)

    def reconstruct(self, codes: Tensor) -> Tensor:
        """Return the reconstructions of codes, shape (n_samples, *sample_shape)."""
        return self.put_together(codes @ self.dictionary.to(codes.dtype))

    def put_together(self, tiles: Tensor) -> Tensor:
        """Return samples from their coded tiles, the mean added again."""
        if self.tiling.in_order:
            merged = tiles.reshape(tiles.shape[0], *self.sample_shape)
        else:
            merged = put_together(tiles, self.layout, self.sample_shape)
        return merged + self.mean.to(tiles.dtype)

    def extra_repr(self) -> str:
        """Return the settings that torch shows between the brackets."""
        return (
            f"{self.tiling}, n_atoms={len(self.atoms)}, sample_shape={self.sample_shape}, "
            f"lambda_rec={self.lambda_rec:g}, lambda_l1={self.lambda_l1:g}, "
            f"output={self.output!r}"
        )


def _check_whole(name: str, value: int, smallest: int) -> None:
    if not is_whole(value, smallest):
        raise ValueError(f"{name} must be a whole number ≥ {smallest}; got {value!r}.")
