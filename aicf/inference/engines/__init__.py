"""What gives a session its programs: one compiled model as it is, or a model that is compiled as shapes come."""
