"""Where commands of agents run: bubblewrap, a Debian package of that name."""
