"""Products outside tensor cores: IEEE f32 and f64, wrapping integers."""
