"""`aicf compare`: one model through several engines, side by side: time, error, memory and start."""
