"""All outgoing connections of the server: one resolver, one policy check, one dialer.

::

    dialing.py       resolve a host once, check every address, connect to a checked address
    sessions.py      aiohttp sessions and urllib3 pools over the dialer, for code in this process
    proxy.py         a forward proxy on loopback for subprocesses, which cannot be trusted to resolve names
    parsing.py       strict parsing and rewriting of the requests that proxy.py accepts
    sockets.py       the proxy as a socket in the file system, for sandboxes
    environments.py  the environment that makes git and helper processes use the proxy
    dial.py          the program through which git:// and ssh:// connections reach the proxy
    confine.py       a restriction of helper processes to the proxy

The policy itself is pure (`core.definitions.network_policy`). A test in tests/architecture asserts that no
other module of the server opens connections. See docs/adr/0021.
"""
