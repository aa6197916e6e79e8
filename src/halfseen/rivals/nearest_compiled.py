"""The inner loop of `nearest` for CPUs, compiled with numba."""

from __future__ import annotations

import numpy as np

from halfseen.compiling import compiled_once


@compiled_once()
def mean_of_first(
    holes, donors, donors_observed, order, n_reachable, n_neighbors, means, start, stop
):
    """Write rows `start` to `stop` of `means`; see `nearest._mean_of_first`."""
    n_features = donors.shape[1]
    wanted = np.empty(n_features, dtype=np.int64)
    count = np.empty(n_features, dtype=np.int64)
    for row in range(start, stop):
        n_wanted = 0
        for feature in range(n_features):
            count[feature] = 0
            if holes[row, feature]:
                wanted[n_wanted] = feature
                n_wanted += 1
        for place in range(n_reachable[row]):
            if n_wanted == 0:
                break
            donor = order[row, place]
            n_left = 0
            for i in range(n_wanted):
                feature = wanted[i]
                if donors_observed[donor, feature]:
                    means[row, feature] += donors[donor, feature]
                    count[feature] += 1
                if count[feature] < n_neighbors:
                    wanted[n_left] = feature
                    n_left += 1
            n_wanted = n_left
        for feature in range(n_features):
            if count[feature]:
                means[row, feature] /= count[feature]
