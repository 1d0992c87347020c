"""Jails on systems that allow less than this one."""

import inspect

from abreast.worktrees import confinement as confine
from abreast.worktrees import sandbox as jail


def refuse(monkeypatch, place, function):
    """The jail as it is, but for one function of the system that fails as it does in many a container."""
    text = inspect.getsource(jail).replace(
        "libc = ctypes.CDLL(None, use_errno=True)",
        "class Libc:\n"
        "    real = ctypes.CDLL(None, use_errno=True)\n"
        "    def __getattr__(self, name):\n"
        "        refuse = lambda *_: (ctypes.set_errno(1), -1)[1]\n"
        f"        return refuse if name == {function!r} else getattr(self.real, name)\n"
        "libc = Libc()",
    )
    (place / "jail.py").write_text(text)
    monkeypatch.setattr(confine, "_JAIL", ("-I", "-S", str(place / "jail.py")))
