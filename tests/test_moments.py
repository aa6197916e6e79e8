import numpy as np
import pytest

from halfseen.moments import ObservedMoments


def values_with_holes():
    random = np.random.default_rng(0)
    values = random.standard_normal((50, 2, 3)) * 5 + 100
    values[random.random(values.shape) < 0.4] = np.nan
    values[:20, 1, 2] = np.nan  # not seen in the first part
    return values


def test_moments_are_those_of_numpy():
    values = values_with_holes()
    moments = ObservedMoments.of(values)
    np.testing.assert_allclose(moments.mean, np.nanmean(values, axis=0))
    np.testing.assert_array_equal(moments.count, (~np.isnan(values)).sum(0))
    deviations = values - np.nanmean(values, axis=0)
    np.testing.assert_allclose(moments.root_mean_square(), np.sqrt(np.nanmean(deviations**2)))
    np.testing.assert_allclose(moments.centred(values), deviations)


def test_parts_merge_into_the_whole():
    values = values_with_holes()
    whole = ObservedMoments.of(values)
    merged = ObservedMoments.of(values[:20])
    for part in (values[20:21], values[21:]):
        merged = merged.merged(ObservedMoments.of(part))
    np.testing.assert_allclose(merged.mean, whole.mean)
    np.testing.assert_array_equal(merged.count, whole.count)
    np.testing.assert_allclose(merged.square_sum, whole.square_sum)


def test_features_that_were_never_seen_are_named():
    moments = ObservedMoments.of(values_with_holes()[:20])
    assert moments.mean[1, 2] == 0
    with pytest.raises(ValueError, match=r"1 feature.*the first is \(1, 2\)"):
        moments.require_every_feature()
