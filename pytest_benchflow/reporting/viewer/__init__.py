"""The pages of `bf view`: what is below a directory of jobs, as it is now, for browsers on this machine only."""
