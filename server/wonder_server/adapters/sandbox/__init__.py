"""The sandbox for commands of agents, made with bubblewrap."""
