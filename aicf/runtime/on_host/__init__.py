"""Programs that run in this process's memory: where arena, weights and state lie, and how they are replayed."""
