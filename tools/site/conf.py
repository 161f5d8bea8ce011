"""Configuration of Sphinx for the site, see `pages.py`."""

from __future__ import annotations

from typing import Any

from pygments.lexers.special import TextLexer

project = "AICF"
root_doc = "index"
extensions = ["myst_nb", "sphinx_copybutton"]
html_theme = "furo"
html_title = "AICF"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

myst_heading_anchors = 4
myst_links_external_new_tab = False
# MLIR has no lexer in Pygments, and pages show excerpts.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove"  # progress


def setup(app: Any) -> None:
    """Shows MLIR, and lists of words, as plain text."""
    for language in ("mlir", "aicf"):
        app.add_lexer(language, TextLexer)
