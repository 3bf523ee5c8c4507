"""Commands around a long job: check a machine, install software, submit jobs, estimate their time."""
