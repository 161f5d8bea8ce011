"""The documentation as a site: `python -m aicf.tools.site OUTPUT`, made by Sphinx from the pages of the repository."""
