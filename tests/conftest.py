"""What holds for every test."""

from hypothesis import settings

# A machine that does other work is no defect of an example.
settings.register_profile("patient", deadline=None)
settings.register_profile("campaign", deadline=None, max_examples=2000)
settings.load_profile("patient")
