"""Files of branches in folders that agents write to."""
