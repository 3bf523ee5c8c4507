"""Machine: what is learned: the objective's seam, masking, schedules, phases, parameter groups, metrics."""
