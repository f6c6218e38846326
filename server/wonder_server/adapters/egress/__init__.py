"""Everything that leaves the server leaves through here: one resolver, one policy check, one dialer.

::

    dialing.py       resolve a host once, check every address, connect to an address that was checked
    sessions.py      aiohttp sessions and urllib3 pools on top of it, for code in this process
    proxy.py         a forward proxy on loopback for subprocesses, which cannot be trusted to resolve
    parsing.py       the requests that proxy.py accepts, parsed strictly and written anew
    sockets.py       the same as a socket in the file system, for sandboxes
    environments.py  how git and the helper processes are told to use that proxy
    dial.py          the program by which git:// and ssh:// connections reach the proxy
    confine.py       keeps a helper process from connecting to anything else

The policy itself is pure (`core.network`). A test in tests/architecture asserts that no other module of the
server opens connections. See docs/adr/0021.
"""
