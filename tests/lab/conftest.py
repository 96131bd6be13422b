import matplotlib
import matplotlib.pyplot as plt
import pytest

from transformer_lab import plots


@pytest.fixture
def ax():
    """An empty plot in the course's style."""
    with matplotlib.rc_context():
        plots.style()
        yield plots.figure(7, 4)
    plt.close("all")
