"""Each way of training against steps computed by hand in numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from halfseen import (
    Published,
    SparseCodingClassifier,
    Whole,
    ampute,
    published_settings,
    rivals,
    sparse_fitting,
)
from halfseen.coding import MaskedLasso, make_solver
from halfseen.networks import NAMED
from halfseen.nn import SparseCompletion
from halfseen.rivals import base
from halfseen.solvers.fista import FixedSteps, largest_curvature
from halfseen.training.completing import CodingPlan
from halfseen.training.joint import Joint
from halfseen.training.loop import accuracy
from halfseen.training.plan import one_cycle
from halfseen.training.published import PublishedSequential, Simultaneous
from halfseen.training.samples import Samples
from halfseen.training.task import Sequential, TaskDriven
from halfseen.training.trainer import evaluating

N_SAMPLES, N_FEATURES, N_ATOMS, N_CLASSES = 6, 5, 8, 3
LAMBDA_REC, LAMBDA_L1 = 0.7, 1.3


def make_trainer(way, output="reconstruction", n_epochs=10, batch_size=N_SAMPLES, **settings):
    """Return a trainer of a small problem with a linear network, in float64."""
    rates = {"rates": settings.pop("rates")} if "rates" in settings else {}
    torch.manual_seed(0)
    X = torch.randn(N_SAMPLES, N_FEATURES, dtype=torch.float64)
    observed = torch.rand(X.shape) < 0.6
    samples = Samples(
        X * observed,
        observed,
        torch.arange(N_SAMPLES) % N_CLASSES,
        torch.ones(N_SAMPLES, dtype=torch.float64),
    )
    completion = SparseCompletion(
        Whole(),
        N_ATOMS,
        (N_FEATURES,),
        lambda_rec=LAMBDA_REC,
        lambda_l1=LAMBDA_L1,
        output=output,
        tol=1e-12,
        n_gradient_steps=50,
    ).double()
    completion.normalise_atoms()  # to norm 1 in float64
    network = nn.Linear(N_FEATURES, N_CLASSES).double()
    weights = {"lambda_rec": LAMBDA_REC, "lambda_l1": LAMBDA_L1}
    plan = CodingPlan(n_epochs, batch_size, 0.1, **weights, **settings)
    generator = torch.Generator().manual_seed(0)
    return way(completion, network, samples, plan, generator, **rates)


class ByHand:
    """The quantities of the paper in numpy, for one batch of all samples."""

    def __init__(self, trainer):
        self.D = trainer.completion.atoms.detach().numpy().copy()
        self.W = trainer.network.weight.detach().numpy().copy()
        self.b = trainer.network.bias.detach().numpy().copy()
        self.X = trainer.samples.X.numpy()
        self.m = trainer.samples.observed.numpy()
        self.onehot = np.eye(N_CLASSES)[trainer.samples.y.numpy()]
        self.speed = [np.zeros_like(self.W), np.zeros_like(self.b)]

    def probability_error(self, reconstruction):
        scores = reconstruction @ self.W.T + self.b
        odds = np.exp(scores - scores.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True) - self.onehot

    def slope_of_fit(self, S):
        """Return the derivative of J1 in the reconstruction."""
        share = self.m.mean(1, keepdims=True)
        return -2 * share * self.m * (self.X - S @ self.D)

    def reconstruction_slope(self, S, label_weight=1.0):
        labels = label_weight * self.probability_error(S @ self.D) @ self.W
        return (labels + LAMBDA_REC * self.slope_of_fit(S)) / N_SAMPLES

    def move_network(self, S, rate, momentum):
        error = self.probability_error(S @ self.D) / N_SAMPLES
        slopes = error.T @ (S @ self.D), error.sum(0)
        for speed, slope in zip(self.speed, slopes, strict=True):
            speed *= momentum
            speed += slope
        self.W -= rate * self.speed[0]
        self.b -= rate * self.speed[1]

    def move_dictionary(self, slope, rate):
        self.D -= rate * slope
        self.D /= np.linalg.norm(self.D, axis=1, keepdims=True)

    def moved_codes(self, S, rate, label_weight):
        slope = self.reconstruction_slope(S, label_weight) @ self.D.T
        slope += LAMBDA_L1 / N_FEATURES * np.sign(S) / N_SAMPLES
        change = -rate * slope
        change[S * (S + change) < 0] = -S[S * (S + change) < 0]
        return np.where(S == 0, 0, S + change)

    def check(self, trainer):
        np.testing.assert_allclose(trainer.network.weight.detach(), self.W, rtol=1e-10)
        np.testing.assert_allclose(trainer.network.bias.detach(), self.b, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(trainer.completion.atoms.detach(), self.D, rtol=1e-10)


@pytest.mark.parametrize("label_weight", [1.0, 0.3])
def test_algorithm_1_step_by_step(label_weight):
    rates = Published(code_rate=2.0, momentum=0.5)
    trainer = make_trainer(Simultaneous, rates=rates, label_weight=label_weight)
    trainer.codes[0, 0, 0] = 0.0  # stays
    hand, S = ByHand(trainer), trainer.codes[:, 0].numpy().copy()
    everything = torch.arange(N_SAMPLES)
    for _ in range(3):
        D_slope = S.T @ hand.reconstruction_slope(S)
        hand.move_network(S, rate=0.1, momentum=0.5)
        hand.move_dictionary(D_slope, rate=2.0)
        S = hand.moved_codes(S, 2.0, label_weight)
        trainer.step(everything)
        trainer.n_steps += 1
        hand.check(trainer)
        np.testing.assert_allclose(trainer.codes[:, 0], S, rtol=1e-9, atol=1e-14)
        assert trainer.codes[0, 0, 0] == 0
    assert (S == 0).sum() > 1  # some code was stopped at zero


def test_algorithm_2_step_by_step():
    rates = Published(test_code_rate=0.8)
    trainer = make_trainer(Simultaneous, rates=rates)
    batch_size, n_steps = 4, 25
    solver = rates.test_solver(N_FEATURES, batch_size, n_steps, LAMBDA_L1)
    completion = trainer.completion
    completion.solver, completion.tol = solver, 0.0
    X, observed = trainer.samples.X, trainer.samples.observed
    codes = completion.encode(X, observed)[:, 0].detach().numpy()

    hand = ByHand(trainer)
    problem = MaskedLasso(X, observed, completion.dictionary.detach(), X.new_ones(N_SAMPLES))
    S = solver._start(problem, N_SAMPLES, N_ATOMS).numpy()
    for _ in range(n_steps):
        slope = LAMBDA_REC * hand.slope_of_fit(S) @ hand.D.T + LAMBDA_L1 / N_FEATURES * np.sign(S)
        moved = S - 0.8 * slope / batch_size
        S = np.where(S * moved > 0, moved, 0)
    np.testing.assert_allclose(codes, S, rtol=1e-9, atol=1e-13)
    assert 0 < (S == 0).mean() < 1


def test_algorithm_3_step_by_step():
    rates = Published(code_rate=2.0, momentum=0.5, sequential=True)
    trainer = make_trainer(PublishedSequential, rates=rates, n_epochs=2)
    assert trainer.n_epochs == 4
    hand, S = ByHand(trainer), trainer.codes[:, 0].numpy().copy()
    everything = torch.arange(N_SAMPLES)
    for epoch in range(4):
        if epoch < 2:
            hand.move_dictionary(S.T @ hand.slope_of_fit(S) / N_SAMPLES, rate=2.0)
            S = hand.moved_codes(S, 2.0, label_weight=0.0)
        else:
            hand.move_network(S, rate=0.1, momentum=0.5)
        trainer.step(everything)
        trainer.n_steps += 1
        hand.check(trainer)
        np.testing.assert_allclose(trainer.codes[:, 0], S, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("way", [Simultaneous, Joint, TaskDriven])
def test_scaling_by_the_inverse_share_is_other_weights_where_all_miss_as_much(way):
    """λ1·(M/N)² in place of λ1 makes N/M what M/N was."""
    rates = {"rates": Published(code_rate=2.0)} if way is Simultaneous else {}
    trained = []
    observed = torch.tensor([True, False, False, True, False])
    for rec_scaling, factor in (("share", 1.0), ("inverse", (2 / 5) ** 2)):
        trainer = make_trainer(way, label_weight=0.4, **rates)
        trainer.samples.observed[:] = observed
        trainer.samples.X.mul_(observed)
        trainer.completion.rec_scaling = rec_scaling
        trainer.completion.lambda_rec *= factor
        trainer.plan = replace(trainer.plan, lambda_rec=LAMBDA_REC * factor)
        for _ in range(3):
            trainer.set_rates()
            trainer.step(torch.arange(N_SAMPLES))
        trained.append(trainer)
    for one, other in zip(*(trainer.modules.values() for trainer in trained), strict=True):
        torch.testing.assert_close(one.state_dict(), other.state_dict())


@pytest.mark.parametrize("label_weight", [0.4, 4.0, 100.0])
def test_labelled_code_steps_by_hand(label_weight):
    trainer = make_trainer(Joint, label_weight=label_weight)
    hand, batch = ByHand(trainer), trainer.samples
    torch.manual_seed(1)
    codes = torch.randn(N_SAMPLES, 1, N_ATOMS, dtype=torch.float64)
    lipschitz = np.linalg.norm(hand.D, 2) ** 2
    problem = trainer.completion.problem(batch.X, batch.observed, torch.from_numpy(hand.D))
    moved = trainer.labelled_code_steps(problem, codes, batch, torch.tensor(lipschitz))

    # λ1·J1 + λ2·J2 + label_weight·J0, divided by 2·λ1·M/N; FISTA with J0 by its tangent.
    S = codes[:, 0].numpy()
    unit = 2 * LAMBDA_REC * hand.m.mean(1, keepdims=True)
    price = LAMBDA_L1 / N_FEATURES / unit
    tangent = label_weight * hand.probability_error(S @ hand.D) @ hand.W @ hand.D.T / unit
    new = ahead = S
    for step in range(8):
        slope = tangent - hand.m * (hand.X - ahead @ hand.D) @ hand.D.T
        far = ahead - slope / lipschitz
        last, new = new, np.sign(far) * np.maximum(np.abs(far) - price / lipschitz, 0)
        ahead = new + step / (step + 3) * (new - last)

    def objective(codes: np.ndarray) -> np.ndarray:
        error = (hand.m * (hand.X - codes @ hand.D)) ** 2
        scores = codes @ hand.D @ hand.W.T + hand.b
        J0 = np.log(np.exp(scores).sum(1)) - (scores * hand.onehot).sum(1)
        lasso = error.sum(1) / 2 + price[:, 0] * np.abs(codes).sum(1)
        return lasso + label_weight * J0 / unit[:, 0]

    shares = np.array([0.0, 1.0, 1 / 8, 1 / 64])
    values = np.array([objective(S + share * (new - S)) for share in shares])
    gone = shares[values.argmin(0)]
    assert len(set(gone)) > 1 or label_weight < 1  # where labels rule, tangents mislead
    np.testing.assert_allclose(moved[:, 0], S + gone[:, None] * (new - S), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("label_weight", [0.0, 0.3, 1.0, 20.0])
def test_code_steps_lower_the_objective_with_network_and_dictionary_held(label_weight):
    trainer = make_trainer(Joint, label_weight=label_weight)
    trainer.n_steps = 9  # annealing is over
    batch, everything = trainer.samples, torch.arange(N_SAMPLES)
    dictionary = trainer.completion.dictionary.detach()
    problem = trainer.completion.problem(batch.X, batch.observed, dictionary)
    trainer.codes += torch.randn(trainer.codes.shape, dtype=torch.float64)
    values = []
    for _ in range(60):
        values.append(trainer.value(problem, trainer.codes, batch))
        trainer.codes = trainer._code_steps(everything, batch)
    values = torch.stack(values)
    assert (values.diff(dim=0) <= 1e-12).all()
    assert (values[-1] < values[0]).all()
    if label_weight == 0:
        assert problem.relative_gap(trainer.codes[:, 0]).max() < 1e-3


def test_task_driven_step_by_finite_differences():
    trainer = make_trainer(TaskDriven, output="completed")
    completion, batch = trainer.completion, trainer.samples
    before = completion.atoms.detach().clone()

    def loss() -> float:
        with torch.no_grad():
            parts = completion.complete(batch.X, batch.observed)
            scores = trainer.network(parts.completed)
            J0 = nn.functional.cross_entropy(scores, batch.y, reduction="none")
            error = ((batch.X - parts.reconstruction) * batch.observed).square().sum(1)
            J1 = batch.observed.double().mean(1) * error
            return (J0 + LAMBDA_REC * J1).mean().item()

    slope = torch.zeros_like(before)
    for index in np.ndindex(*before.shape):
        with torch.no_grad():
            completion.atoms[index] = before[index] + 1e-6
            above = loss()
            completion.atoms[index] = before[index] - 1e-6
            slope[index] = (above - loss()) / 2e-6
            completion.atoms[index] = before[index]
    trainer.set_rates()
    trainer.step(torch.arange(N_SAMPLES))
    clear = slope.abs() > 1e-4
    # The first step of Adam has the length of its rate, against the sign of the gradient.
    rate = 0.08 / N_FEATURES**0.5 * one_cycle(0.0)
    expected = before - rate * slope.sign()
    expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(completion.atoms[clear], expected[clear], rtol=1e-4, atol=1e-5)


def test_sequential_training_leaves_the_dictionary_alone():
    trainer = make_trainer(Sequential)
    before = trainer.completion.atoms.detach().clone()
    weights = trainer.network.weight.detach().clone()
    trainer.start()
    trainer.epoch()
    torch.testing.assert_close(trainer.completion.atoms, before)
    assert not torch.equal(trainer.network.weight, weights)


@pytest.mark.parametrize("way", [TaskDriven, Joint, Simultaneous, PublishedSequential])
def test_atoms_have_norm_one_after_every_step(way):
    rates = {"rates": Published(code_rate=50.0)} if issubclass(way, Simultaneous) else {}
    trainer = make_trainer(way, batch_size=2, **rates)
    for _ in range(2):
        trainer.epoch()
        norms = trainer.completion.atoms.norm(dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms))


def test_every_sample_loses_its_own_share_of_entries():
    trainer = make_trainer(TaskDriven, hide=0.25)
    kept = trainer.kept(torch.ones(2000, 100, dtype=torch.bool)).double().mean(1)
    assert kept.mean() == pytest.approx(0.75, abs=0.01)
    assert kept.max() == 1.0
    assert 0.3 < kept.min() < 0.55
    assert make_trainer(TaskDriven).kept(torch.ones(3, 4, dtype=torch.bool)).all()


def test_hidden_entries_do_not_reach_the_code_but_count_in_the_error(monkeypatch):
    trainer = make_trainer(TaskDriven, hide=0.25)
    monkeypatch.setattr(trainer, "kept", torch.zeros_like)
    outcome = trainer.step(torch.arange(N_SAMPLES))
    assert (outcome["nonzero"] == 0).all()
    X, observed = trainer.samples.X, trainer.samples.observed
    whole = observed.double().mean(1) * (X * observed).square().sum(1)
    torch.testing.assert_close(outcome["J1"], whole)


def test_batch_normalisation_does_not_learn_or_mix_in_code_steps():
    network = nn.Sequential(nn.Linear(N_FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    trainer = make_trainer(Joint, label_weight=1.0)
    trainer.modules["network"] = network.train()
    batch = trainer.samples
    problem = trainer.completion.problem(
        batch.X, batch.observed, trainer.completion.dictionary.detach()
    )
    codes = torch.randn(N_SAMPLES, 1, N_ATOMS, dtype=torch.float64)
    lipschitz = torch.tensor(10.0, dtype=torch.float64)

    def stepped(rows: torch.Tensor) -> torch.Tensor:
        some, of_rows = problem.rows(rows), batch.rows(rows)
        return trainer.labelled_code_steps(some, codes[rows], of_rows, lipschitz)

    together = stepped(torch.arange(N_SAMPLES))
    assert int(network[1].num_batches_tracked) == 0
    assert network.training
    for row in range(N_SAMPLES):
        one = torch.tensor([row])
        torch.testing.assert_close(stepped(one), together[one])
    with evaluating(network):
        assert not network.training
    assert network.training


def test_published_code_steps_see_the_network_in_evaluation_mode():
    trainer = make_trainer(Simultaneous, rates=Published(), label_weight=1.0)
    network = nn.Sequential(nn.Linear(N_FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    trainer.modules["network"] = network.train()
    rows = torch.arange(N_SAMPLES)
    batch, codes = trainer.samples.rows(rows), trainer.codes[rows]
    trainer._update_codes(rows, batch, codes, 1.0)
    together = trainer.codes.clone()
    assert int(network[1].num_batches_tracked) == 0
    assert network.training
    trainer.codes[:] = codes
    rate = trainer.rates.code_rate / N_SAMPLES  # a batch of one has its own mean
    for row in range(N_SAMPLES):
        one = torch.tensor([row])
        trainer.rates = Published(code_rate=rate)
        trainer._update_codes(one, batch.rows(one), codes[one], 1.0)
    torch.testing.assert_close(trainer.codes, together)


def test_the_price_of_a_code_starts_sixfold_in_joint_training():
    trainer = make_trainer(Joint)
    everything, samples = torch.arange(N_SAMPLES), trainer.samples
    for n_steps in range(11):
        trainer.n_steps = n_steps
        trainer.set_rates()
        for _ in range(60):  # to the minimum, at the price of now
            trainer.codes[:] = trainer._code_steps(everything, samples)
        problem = trainer.completion.problem(
            samples.X, samples.observed, trainer.completion.dictionary.detach()
        )
        factor = 6 ** max(0.0, 1 - n_steps / 10 / 0.6)
        priced = replace(problem, alpha=factor * problem.alpha)
        assert priced.relative_gap(trainer.codes[:, 0]).max() < 1e-3


def test_the_validation_accuracy_is_weighted():
    trainer = make_trainer(Joint)
    trainer.samples.weight[:] = torch.arange(N_SAMPLES)
    labels = trainer.scores(trainer.samples.X, trainer.samples.observed).argmax(1)
    trainer.samples.y[:] = labels
    trainer.samples.y[4:] = (labels[4:] + 1) % N_CLASSES
    assert accuracy(trainer, trainer.samples) == pytest.approx((1 + 2 + 3) / (1 + 2 + 3 + 4 + 5))


def test_a_batch_counts_by_its_weight_among_all_samples():
    """Steps of light batches are short: else a light sample would move as much as a heavy one."""
    losses = torch.ones(N_SAMPLES, dtype=torch.float64)
    trainer = make_trainer(Simultaneous, rates=Published())
    trainer.samples.weight[:] = torch.arange(N_SAMPLES)
    rows = torch.tensor([0, 1])
    assert trainer.weighted_mean(losses[rows], rows).item() == pytest.approx(0.5)
    assert trainer.weighted_mean(losses, torch.arange(N_SAMPLES)).item() == pytest.approx(2.5)


def test_schedule_rises_then_falls_to_zero():
    rates = [one_cycle(step / 100) for step in range(101)]
    top = int(np.argmax(rates))
    assert rates[top] == 1.0
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(0)


def test_published_settings_are_those_of_the_paper():
    cnn = published_settings("mnist-cnn4", missing=0.75)
    assert (cnn["lambda_rec"], cnn["lambda_l1"]) == (1.28, 1.28)
    assert (cnn["n_epochs"], cnn["batch_size"], cnn["learning_rate"]) == (3500, 250, 0.05)
    assert cnn["training"] == Published(code_rate=0.4, test_code_rate=0.5, momentum=0.5)
    assert published_settings("mnist-cnn4", "occlusion")["lambda_l1"] == 10.24
    logistic = published_settings("mnist-logistic", missing=0.5)
    assert (logistic["lambda_rec"], logistic["n_epochs"]) == (0.64, 3000)
    resnet = published_settings("cifar10-resnet18", missing=0.25)
    assert (resnet["lambda_rec"], resnet["lambda_l1"], resnet["batch_size"]) == (0.032, 0.01, 64)
    for settings in (cnn, logistic, resnet):
        SparseCodingClassifier(**settings)
    third = published_settings("mnist-cnn4", missing=0.75, sequential=True)
    assert third.pop("training") == replace(cnn.pop("training"), sequential=True)
    assert third == cnn
    with pytest.raises(ValueError, match="mnist-cnn4"):
        published_settings("mnist", missing=0.5)
    with pytest.raises(ValueError, match="0.75"):
        published_settings("mnist-logistic", missing="occlusion")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("network", "dtype", "tol"),
    [("mlp", np.float32, 1e-3), ("mlp", np.float64, 1e-6), ("cnn4_bn", np.float64, 1e-6)],
)
@pytest.mark.parametrize(
    "way", ["sequential", "task", "joint", "joint, labels", "published", "mean", "neumiss"]
)
def test_recorded_steps_are_the_steps_as_written(monkeypatch, network, dtype, tol, way):
    """On a GPU steps are replayed; batches of two sizes, dropout of entries, batch norm."""
    # Learning a dictionary turns differences of rounding into others than these tolerances.
    monkeypatch.setattr(sparse_fitting, "start_from_samples", lambda *_: None)
    images = np.random.default_rng(0).random((330, 1, 8, 8)).astype(dtype)
    images[np.random.default_rng(1).random(images.shape) < 0.5] = np.nan
    y = np.arange(330) % 3
    settings = {"n_epochs": 6, "batch_size": 50, "learning_rate": 0.002, "weight_decay": 0.01}
    settings["random_state"] = 0

    def fitted(spec):
        if way in ("mean", "neumiss"):
            maker = rivals.mean_fill if way == "mean" else rivals.neumiss
            return maker(spec, **settings).fit(images, y)
        training = Published() if way == "published" else way.split(",")[0]
        weight = 1.0 if way == "joint, labels" else 0.0
        clf = SparseCodingClassifier(spec, training=training, label_weight=weight, **settings)
        return clf.fit(images, y)

    replayed = fitted(network)
    # A function is not known to do the same work in every step, so it is not recorded.
    written = fitted(lambda shape, n: NAMED[network](shape, n))
    for one, other in zip(replayed.history_, written.history_, strict=True):
        assert one["J0"] == pytest.approx(other["J0"], rel=tol)
    np.testing.assert_allclose(
        replayed.predict_proba(images), written.predict_proba(images), atol=10 * tol
    )


@pytest.mark.gpu
def test_what_learns_in_half_precision_on_a_gpu_learns():
    X, y = load_digits(return_X_y=True)
    images = ampute(X.reshape(-1, 1, 8, 8).astype(np.float32), "random", 0.25, random_state=0)
    clf = SparseCodingClassifier("resnet18", n_epochs=10, batch_size=50, random_state=0)
    assert clf.fit(images[:1200], y[:1200]).score(images[1200:], y[1200:]) > 0.8


def test_a_fixed_number_of_steps_is_fista_with_a_safe_step():
    random = torch.Generator().manual_seed(0)
    options = {"generator": random, "dtype": torch.float64}
    dictionary = torch.nn.functional.normalize(torch.randn(30, 12, **options), dim=1)
    X = torch.randn(40, 12, **options)
    observed = torch.rand(40, 12, **options) < 0.7
    problem = MaskedLasso(X * observed, observed, dictionary, torch.full((40,), 0.2).double())
    few = FixedSteps().solve(problem, None, 0.0, 0)
    many = FixedSteps(2000).solve(problem, None, 0.0, 0)
    exact = make_solver("cd", torch.device("cpu")).solve(problem, None, 1e-12, 10_000)
    torch.testing.assert_close(many.codes, exact.codes, atol=1e-6, rtol=0)
    assert (problem.objective(few.codes) >= problem.objective(many.codes) - 1e-12).all()
    assert (problem.objective(few.codes) < 1.05 * problem.objective(exact.codes) + 0.01).all()
    torch.testing.assert_close(many.gap, problem.relative_gap(many.codes), atol=1e-9, rtol=1e-3)
    norm = torch.linalg.matrix_norm(dictionary, 2).square().item()
    assert largest_curvature(dictionary) == pytest.approx(norm)


class ShortensItself(nn.Module):
    """A network that multiplies in bfloat16 by its own will, as many do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = NAMED["cnn4_bn"]((1, 8, 8), 10)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(X).float()


@pytest.mark.parametrize(
    ("way", "shortened_by"),
    [
        ("joint", "us"),
        ("a rival", "us"),
        ("joint", "the network"),
        ("sequential", "the network"),
        ("a rival", "the network"),
    ],
)
def test_networks_learn_as_well_in_half_precision(monkeypatch, way, shortened_by):
    """On a GPU some do so by default; here they are made to, within the autocast of training."""
    X, y = load_digits(return_X_y=True)
    images = X[:600].reshape(-1, 1, 8, 8).astype(np.float32)  # autocast leaves float64 alone
    images = ampute(images, "random", 0.25, random_state=0)
    settings = {"n_epochs": 5, "batch_size": 50, "random_state": 0, "learning_rate": 0.004}
    settings |= {"validation_fraction": 0.1, "weight_decay": 0.01}

    def accuracy(network, by_us: bool) -> float:
        for module in (sparse_fitting, base):
            monkeypatch.setattr(module, "learns_in_half", lambda *_: by_us)
        if way == "a rival":
            clf = rivals.mean_fill(network, **settings)
        else:
            ours = {"n_atoms": 64, "training": way, "label_weight": 0.1}
            clf = SparseCodingClassifier(network, **ours, **settings)
        return clf.fit(images[:400], y[:400]).score(images[400:], y[400:600])

    by_us = shortened_by == "us"
    in_half = accuracy("cnn4_bn" if by_us else ShortensItself, by_us)
    in_full = accuracy("cnn4_bn", False)
    assert in_full > 0.6  # a tenth by chance
    assert in_half > in_full - 0.05
