"""Machine: how processes are started; what is started knows nothing of it."""
