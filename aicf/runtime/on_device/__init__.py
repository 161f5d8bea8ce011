"""Programs that run on a device: its memory, streams and arrays, and how what was captured is replayed."""
