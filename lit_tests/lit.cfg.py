"""Configuration of plain ``lit``: ``lit lit_tests`` from a clone or an installed environment."""

import os
import sys
import tempfile

import lit.formats

config.name = "AICF"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.excludes = ["Inputs"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
config.test_exec_root = os.path.join(tempfile.gettempdir(), f"aicf-lit-{os.getuid()}")  # noqa: F821

# Said with each command, because lit's own diff changes PYTHONPATH for the commands after it.
_PYTHON = f"env PYTHONPATH={os.path.dirname(os.path.abspath(config.test_source_root))} {sys.executable}"  # noqa: F821

# A name that is part of a path or of a longer name is not the command.
_COMMANDS = {
    "aicf-opt": "aicf.tools.aicf_opt",
    "aicf": "aicf.tools.aicf_cli",
    "filecheck": "filecheck --enable-var-scope",
}
for name, module in _COMMANDS.items():
    config.substitutions.append((rf"(?<![\w./-]){name}(?![\w./-])", f"{_PYTHON} -m {module}"))  # noqa: F821
