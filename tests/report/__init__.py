"""Reports: their data, their page, and what a browser makes of it."""
