"""The named pipelines, and what runs the passes of one."""
