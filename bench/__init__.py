"""The performance harness: this server beside its peers, in one run on one machine. See `python -m bench --help`."""
