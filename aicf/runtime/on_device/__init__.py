"""Programs that run on a device: memory, streams, arrays, replay."""
