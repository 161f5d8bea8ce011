"""From groups to emit programs: buffers, order, streams, memory, capture."""
