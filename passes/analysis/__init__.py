"""Facts about emit programs: order, liveness, hazards, accesses, work done."""
