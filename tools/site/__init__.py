"""The documentation as a site, made by Sphinx: `python -m aicf.tools.site OUTPUT`."""
