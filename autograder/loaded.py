"""Importing this loads all that a worker needs, checks and known mistakes too. It runs nothing in several threads.

The process that imports it is forked for each worker (:mod:`autograder.quick_start`), and threads do not survive a fork.
"""

from __future__ import annotations

from autograder import quick_start

quick_start.leave_out_unused()

import torch  # noqa: E402 - what is left out must be so before

torch.set_num_threads(1)

from autograder import feedback, grade, registry  # noqa: E402, F401

registry.checks()
