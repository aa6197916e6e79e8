"""What people use instead, behind the same `fit`, `predict` and `predict_proba`.

Every function below returns an unfitted classifier for data with NaN. Those with a network take
any of our networks and the parameters of training of `SparseCodingClassifier` (`n_epochs`,
`batch_size`, `learning_rate`, `weight_decay`, `validation_fraction`, `hide`, `device`,
`random_state`, `verbose`), and train by the same optimiser, schedule and early stopping, with
entries hidden in each step by the same law where that helped on development data: everywhere but
before logistic regression after a plain fill, a nearest-neighbour or iterative imputer or in
NN-GMM.

Some fill training samples with the help of their labels (`class_mean_fill`, `class_knn_fill`).
New samples, and those held out for validation, are filled without labels: from all classes.
"""

from __future__ import annotations

from sklearn.base import ClassifierMixin
from sklearn.impute import KNNImputer, SimpleImputer

from halfseen.classifier import SparseCodingClassifier
from halfseen.networks import NetworkSpec
from halfseen.rivals.imputed import ImputedClassifier
from halfseen.rivals.imputers import ClassKNNImputer, ClassMeanImputer
from halfseen.rivals.mixture import NNGMMClassifier
from halfseen.rivals.neumann import NeuMissClassifier

__all__ = [
    "ClassKNNImputer",
    "ClassMeanImputer",
    "ImputedClassifier",
    "NNGMMClassifier",
    "NeuMissClassifier",
    "class_knn_fill",
    "class_mean_fill",
    "complete_data",
    "gradient_boosting",
    "iterative_fill",
    "knn_fill",
    "mean_and_indicator",
    "mean_fill",
    "neumiss",
    "nn_gmm",
    "of_the_paper",
    "sequential_sparse",
    "usual",
    "zero_fill",
]


def zero_fill(network: NetworkSpec = "logistic", **training) -> ImputedClassifier:
    """Return a network on samples with 0, in the units of X, in the holes (paper: ZF)."""
    zeros = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
    return ImputedClassifier(zeros, network, impute_scaled=False, **_with_hiding(network, training))


def mean_fill(network: NetworkSpec = "logistic", **training) -> ImputedClassifier:
    """Return a network on samples with the mean of the feature in the holes (paper: MU)."""
    return ImputedClassifier(
        SimpleImputer(keep_empty_features=True), network, **_with_hiding(network, training)
    )


def class_mean_fill(network: NetworkSpec = "logistic", **training) -> ImputedClassifier:
    """Return a network trained on samples filled with means of their class (paper: MS)."""
    return ImputedClassifier(ClassMeanImputer(), network, **training)


def class_knn_fill(
    network: NetworkSpec = "logistic", n_neighbors: int = 10, **training
) -> ImputedClassifier:
    """Return a network trained on samples filled from neighbours of their class (paper: KNN).

    The paper has 10, 20, 50 and 100 neighbours.
    """
    return ImputedClassifier(
        ClassKNNImputer(n_neighbors), network, **_with_hiding(network, training)
    )


def sequential_sparse(network: NetworkSpec = "logistic", **settings) -> SparseCodingClassifier:
    """Return dictionary and codes first, network afterwards (paper: Seq. Sp., Algorithm 3).

    With our optimisers, and observed values kept, to be as strong as the others. In the paper the
    network learns reconstructions: ``network_input="reconstruction"``. Algorithm 3 step by step
    is ``SparseCodingClassifier(**published_settings(name, missing, sequential=True))``.
    """
    return SparseCodingClassifier(network, training="sequential", **settings)


def nn_gmm(network: NetworkSpec = "mlp", n_components: int = 10, **training) -> NNGMMClassifier:
    """Return a network with expected activations under a Gaussian mixture (paper: NN-GMM)."""
    return NNGMMClassifier(network, n_components, **_with_hiding(network, training))


def mean_and_indicator(network: NetworkSpec = "logistic", **training) -> ImputedClassifier:
    """Return a network that sees means in the holes, and which values were holes."""
    means = SimpleImputer(keep_empty_features=True)
    return ImputedClassifier(means, network, indicator=True, **training)


def knn_fill(
    network: NetworkSpec = "logistic", n_neighbors: int = 5, **training
) -> ImputedClassifier:
    """Return a network after scikit-learn's KNNImputer, which knows no labels."""
    return ImputedClassifier(
        KNNImputer(n_neighbors=n_neighbors, keep_empty_features=True),
        network,
        **_with_hiding(network, training),
    )


def iterative_fill(network: NetworkSpec = "logistic", **training) -> ImputedClassifier:
    """Return a network after scikit-learn's IterativeImputer."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    imputer = IterativeImputer(random_state=0, keep_empty_features=True)
    return ImputedClassifier(imputer, network, **_with_hiding(network, training))


def neumiss(network: NetworkSpec = "mlp", depth: int = 10, **training) -> NeuMissClassifier:
    """Return a network after a learned Neumann series in the manner of NeuMiss."""
    return NeuMissClassifier(network, depth, **training)


def complete_data(
    network: NetworkSpec = "logistic", dropout: float = 0.0, **training
) -> ImputedClassifier:
    """Return a network for complete samples: the ceiling, and the paper's dropout control.

    The paper's control drops 0, 0.1 and 0.25 of the input.
    """
    return ImputedClassifier(None, network, dropout=dropout, hide=0.0, **training)


def gradient_boosting(random_state=None, **settings) -> ClassifierMixin:
    """Return scikit-learn's HistGradientBoostingClassifier, which takes NaN as it is.

    Samples of any shape are flattened for it. `settings` are its own.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    trees = HistGradientBoostingClassifier(random_state=random_state, **settings)
    return make_pipeline(FunctionTransformer(_flattened), trees)


def of_the_paper(network: NetworkSpec = "logistic", **training) -> dict[str, ClassifierMixin]:
    """Return the methods that the paper compares with, by the names in its tables."""
    return {
        "ZF": zero_fill(network, **training),
        "MU": mean_fill(network, **training),
        "MS": class_mean_fill(network, **training),
        **{f"KNN{k}": class_knn_fill(network, k, **training) for k in (10, 20, 50, 100)},
        "Seq. Sp.": sequential_sparse(network, **training),
        "NN-GMM": nn_gmm(network, **training),
    }


def usual(network: NetworkSpec = "logistic", **training) -> dict[str, ClassifierMixin]:
    """Return what people really use, by name."""
    return {
        "mean fill": mean_fill(network, **training),
        "mean + indicator": mean_and_indicator(network, **training),
        "KNNImputer": knn_fill(network, **training),
        "IterativeImputer": iterative_fill(network, **training),
        "NeuMiss": neumiss(network, **training),
        "gradient boosting": gradient_boosting(training.get("random_state")),
    }


def _with_hiding(network: NetworkSpec, training: dict) -> dict:
    """Hide nothing from logistic regression, unless asked to: here it costs accuracy."""
    return {"hide": 0.0 if network == "logistic" else 0.25, **training}


def _flattened(X):
    return X.reshape(len(X), -1) if getattr(X, "ndim", 2) > 2 else X
