"""What holds for all tests."""

from importlib.util import find_spec

if find_spec("hypothesis") is not None:  # the GPU tests do without it
    from hypothesis import HealthCheck, settings

    # No test asserts a time: how long inputs take to make says how busy the machine is.
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
