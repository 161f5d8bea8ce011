"""The pages of the tutorial in plain ``lit``: each command is typed, and what the page shows must come."""

import os
import sys
import tempfile

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(_ROOT)

from tests.lit.page_format import PageFormat  # noqa: E402

config.name = "AICF tutorial"  # noqa: F821
config.test_format = PageFormat()  # noqa: F821
config.suffixes = [".md"]  # noqa: F821
config.excludes = ["README.md"]  # noqa: F821
config.test_source_root = os.path.join(_ROOT, "docs", "tutorial")  # noqa: F821
config.test_exec_root = os.path.join(tempfile.gettempdir(), f"aicf-lit-{os.getuid()}", "tutorial")  # noqa: F821
