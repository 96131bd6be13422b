"""What proves the grading: each module is a tool that writes a file of ``results/``, or a test of the whole way."""
