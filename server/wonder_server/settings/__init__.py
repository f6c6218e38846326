"""Settings: the only package that reads the environment and the config file.

`table` declares every setting; the flags of ``wonder serve``, the keys of the config file and
``docs/settings.md`` follow from it. `loading` reads and checks the values. `kinds` parses one value.
"""

from wonder_server.settings.kinds import Group
from wonder_server.settings.loading import (
    inherited_environment,
    load,
    set_default_variable,
    unknown_variables,
)
from wonder_server.settings.table import TABLE, Setting, Settings, SettingsError

__all__ = [
    "TABLE",
    "Group",
    "Setting",
    "Settings",
    "SettingsError",
    "inherited_environment",
    "load",
    "set_default_variable",
    "unknown_variables",
]
