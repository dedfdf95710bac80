"""What a boundary is worth, in one line."""

import pytest

from tyrum_provider_host.claims import CLAIMS, STATED, worth

LATE = CLAIMS[-6:]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (dict.fromkeys(CLAIMS, "PROVED"), "all 20 claims are proved"),
        (
            dict.fromkeys(CLAIMS, "NOT_ENFORCED"),
            "nothing is confined: 20 of 20 claims are NOT_ENFORCED",
        ),
        (
            dict.fromkeys(CLAIMS, "PROVED") | {"net.none": "UNPROVED", "fs.read": "NOT_ENFORCED"},
            "2 of 20 claims are not proved: fs.read, net.none",
        ),
        (
            dict.fromkeys(CLAIMS, "PROVED") | dict.fromkeys(LATE, "UNAVAILABLE") | {"fs.read": "UNPROVED"},
            "7 of 20 claims are not proved: 1 UNPROVED, 6 UNAVAILABLE",
        ),
        (dict.fromkeys(CLAIMS, "UNPROVED"), "20 of 20 claims are not proved: 20 UNPROVED"),
        (dict.fromkeys(CLAIMS, STATED), "20 of 20 claims are stated by the provider, not verified"),
        (
            dict.fromkeys(CLAIMS, "NOT_ENFORCED") | {"net.none": STATED},
            "19 of 20 claims are not proved: 19 NOT_ENFORCED; "
            "1 of 20 claims are stated by the provider, not verified",
        ),
    ],
)
def test_the_worth_of_a_boundary_counts_only_proof(statuses: dict[str, str], expected: str) -> None:
    """Few open claims are named, many counted, and only a boundary that enforces none confines nothing."""
    assert worth(statuses) == expected
