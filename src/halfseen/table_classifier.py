"""`TableClassifier`: from a table as it comes to classes, completed tables and certificates."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from halfseen import classifier_file, storage
from halfseen.boundary import plain, require
from halfseen.certificates.certify import Certificate
from halfseen.classifier import SparseCodingClassifier
from halfseen.networks import NetworkSpec
from halfseen.table_columns import Column
from halfseen.table_encoder import TableEncoder
from halfseen.table_values import filled_column

if TYPE_CHECKING:
    import pandas as pd

KIND = "table classifier"


class TableClassifier(ClassifierMixin, BaseEstimator):
    """Classify the rows of a table with columns of any kind and holes in them.

    A `TableEncoder` before a `SparseCodingClassifier`, in one object and one file. By default
    the network is a perceptron and sees which values are missing, which helps on tables.

    Parameters
    ----------
    classifier : SparseCodingClassifier, optional
        By default ``SparseCodingClassifier("mlp")``. Its `random_state` seeds all.
    encoder : TableEncoder, optional
        By default ``TableEncoder(add_indicator=True)``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    classifier_ : SparseCodingClassifier
    encoder_ : TableEncoder
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the table had column names.

    Examples
    --------
    >>> import pandas as pd
    >>> from halfseen import SparseCodingClassifier, TableClassifier
    >>> table = pd.DataFrame({"age": [50, None, 70, 20] * 9, "blood": ["A", "B", None, "B"] * 9})
    >>> clf = TableClassifier(SparseCodingClassifier("mlp", random_state=0))
    >>> clf.fit(table, ["ill", "well", "ill", "well"] * 9).predict(table[:2]).tolist()
    ['ill', 'well']
    >>> clf.impute(table[1:2]).dtypes.equals(table.dtypes)
    True
    """

    classes_: np.ndarray

    def __init__(
        self,
        classifier: SparseCodingClassifier | None = None,
        encoder: TableEncoder | None = None,
    ):
        self.classifier = classifier
        self.encoder = encoder

    def fit(self, X, y, sample_weight=None) -> TableClassifier:
        """Learn from a table.

        Parameters
        ----------
        X : DataFrame or array of shape (n_rows, n_columns)
            See `TableEncoder`.
        y : array of shape (n_rows,)
            Labels.
        sample_weight : array of shape (n_rows,), optional

        Returns
        -------
        self
        """
        encoder = TableEncoder(add_indicator=True) if self.encoder is None else self.encoder
        classifier = SparseCodingClassifier("mlp") if self.classifier is None else self.classifier
        for name, part, kind in (
            ("encoder", encoder, TableEncoder),
            ("classifier", classifier, SparseCodingClassifier),
        ):
            require(self, name, isinstance(part, kind), f"a {kind.__name__} or None")
        encoder, classifier = clone(encoder), clone(classifier)
        encoder.fit(X, sample_weight=sample_weight)
        classifier.fit(_encoded(encoder, X), y, sample_weight)
        return self._adopt(encoder, classifier)

    def predict(self, X) -> np.ndarray:
        """Return the most probable class of each row, shape (n_rows,)."""
        return self._fitted().predict(_encoded(self.encoder_, X))

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class, shape (n_rows, n_classes)."""
        return self._fitted().predict_proba(_encoded(self.encoder_, X))

    def predict_log_proba(self, X) -> np.ndarray:
        """Return the logarithms of `predict_proba`."""
        return self._fitted().predict_log_proba(_encoded(self.encoder_, X))

    def certify(self, X) -> Certificate:
        """Say for each row whether its holes could change the class.

        All values that were seen in training are possible in a hole, see
        `SparseCodingClassifier.certify`; of a category, anything between all and none. A value
        that becomes known is no longer missing, so what says that it is varies as well.
        """
        values = self._fitted()._checked_new(_encoded(self.encoder_, X))
        free = np.zeros(values.shape, dtype=bool)
        free[:, self._n_values :] = values[:, self._n_values :] == 1
        return self.classifier_._certified(values, free=free)

    def impute(self, X) -> pd.DataFrame:
        """Return the table, as a frame of pandas, with its holes filled.

        Columns, their order and their types stay; sparse ones become dense. What is filled in lies
        within the range that was seen in training.
        """
        classifier = self._fitted()
        values = _encoded(self.encoder_, X)
        # That a value is missing was never seen together with the value, so it says nothing of it.
        values[:, self._n_values :] = np.nan
        low, high = classifier.feature_range_
        filled = self.encoder_.inverse_transform(classifier.impute(values).clip(low, high))
        given = self.encoder_.with_holes(X)
        filled.index = given.index
        completed = given.copy()
        for place in range(given.shape[1]):
            completed.isetitem(place, filled_column(given.iloc[:, place], filled.iloc[:, place]))
        return completed

    @property
    def _n_values(self) -> int:
        """How many of the encoded features are values; those after them say what is missing."""
        return sum(column.width for column in self.encoder_.columns_)

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted classifier to one file without code in it, whole or not at all."""
        check_is_fitted(self, "classifier_")
        parameters = self.encoder_.get_params()
        parameters["missing_values"] = [str(value) for value in parameters["missing_values"]]
        tree = {
            "encoder": {name: plain(value) for name, value in parameters.items()},
            "columns": [column.to_plain() for column in self.encoder_.columns_],
            "named": hasattr(self, "feature_names_in_"),
            "classifier": classifier_file.to_tree(self._fitted()),
        }
        storage.write(path, KIND, tree)

    @classmethod
    def load(
        cls, path: str | os.PathLike, network: NetworkSpec | None = None, device="auto"
    ) -> TableClassifier:
        """Return a classifier from a file that `save` wrote. No code is executed.

        Parameters
        ----------
        path : path
        network : Module or function, optional
            What the classifier's `network` was, if it was not a name: the file holds weights,
            not code.
        device : str or torch.device
            Where to compute.
        """
        return cls.from_tree(storage.read(path, KIND), path, network, device)

    @classmethod
    def from_tree(cls, tree: dict, path: str | os.PathLike, network, device) -> TableClassifier:
        """Return a classifier from the tree of a file, read from `path`."""
        with storage.must_hold(path, classifier_file.WHOLE):
            stored = tree["classifier"]
        inner = classifier_file.from_tree(SparseCodingClassifier, stored, path, network, device)
        with storage.must_hold(path, classifier_file.WHOLE):
            encoder = TableEncoder(**tree["encoder"])
            encoder.check_settings()
            encoder.columns_ = [Column.from_plain(stored) for stored in tree["columns"]]
            encoder.n_features_in_ = len(encoder.columns_)
            names = [column.name for column in encoder.columns_]
            if tree["named"] is not False:
                if not all(isinstance(name, str) for name in names):
                    raise ValueError("its columns have no names")
                encoder.feature_names_in_ = np.array(names, dtype=object)
            if len(encoder.get_feature_names_out()) != inner.n_features_in_:
                raise ValueError("its columns do not fit its network")
        return cls(clone(inner), clone(encoder))._adopt(encoder, inner)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _adopt(self, encoder: TableEncoder, classifier: SparseCodingClassifier) -> TableClassifier:
        self.encoder_, self.classifier_ = encoder, classifier
        self.classes_ = classifier.classes_
        self.n_features_in_ = encoder.n_features_in_
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_
        return self

    def _fitted(self) -> SparseCodingClassifier:
        check_is_fitted(self, "classifier_")
        return self.classifier_


def _encoded(encoder: TableEncoder, X) -> np.ndarray:
    """Return the numbers of a table, as an array of its own even where frames were asked for."""
    return np.array(encoder.transform(X))
