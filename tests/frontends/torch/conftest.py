"""All tests here are of PyTorch's graphs."""

from importlib.util import find_spec

# Every test here has the mark `peers`: where PyTorch is missing, none of them is selected, nor could be imported.
collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
