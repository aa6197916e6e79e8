"""When holes cannot change the answer."""

from halfseen.certificates.certify import Certificate
from halfseen.certificates.conditions import (
    Condition,
    multilayer,
    rip_based,
    type_one,
    type_two,
)
from halfseen.certificates.isometry import (
    isometry_by_coherence,
    isometry_by_sampling,
    isometry_exactly,
)

__all__ = [
    "Certificate",
    "Condition",
    "isometry_by_coherence",
    "isometry_by_sampling",
    "isometry_exactly",
    "multilayer",
    "rip_based",
    "type_one",
    "type_two",
]
