"""Generated examples are the same in each run, so that a failure is one for everybody."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "core",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("core")
