"""The suite runs as it means to."""

import os


def test_tests_that_share_a_fixture_share_a_worker(request):
    """pytest-xdist groups tests by a suffix of their ids; where that gets lost, two workers build the same book."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith(f"@{request.node.path}"), (
            "pytest-xdist lost the groups: choose another pytest"
        )
