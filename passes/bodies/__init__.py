"""What the body of a group or instruction computes: views, kind, loops, workload."""
