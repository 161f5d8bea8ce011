"""The visual report: what `aicf view` writes, one HTML file that needs neither a network nor a GPU.

`contents` is the data of a report, and `gather` collects it: explanations, plans, measured times and comparisons, the
same objects that other commands print with `--json`. `page` puts it into a page with the files of the folder `assets`,
whose scripts draw it and compute nothing. Nothing here decides anything about a program.
"""

from aicf.report.contents import Report
from aicf.report.gather import gather_report
from aicf.report.page import html_page

__all__ = ["Report", "gather_report", "html_page"]
