"""Programs that run in this process's memory, and their replay."""
