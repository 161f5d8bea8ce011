"""Gradients of weights outside tensor cores, in IEEE f32 and f64."""
