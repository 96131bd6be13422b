"""The instructor's package: hidden checks, diagnosis, and grading of untrusted notebooks.

    import autograder
    autograder.run_checks(namespace, piece="softmax")

It is never visible to the kernel that runs a learner's code.
"""

from autograder.runner import CheckResult, Diagnosis, run_checks

__all__ = ["CheckResult", "Diagnosis", "run_checks"]
__version__ = "0.1.0"
