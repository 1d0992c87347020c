"""A sandbox on a system that permits less than this one."""

import inspect

from abreast.worktrees import confinement, sandbox


def refuse(monkeypatch, place, function):
    """Use a sandbox in which one libc function fails, as it does in many containers."""
    text = inspect.getsource(sandbox).replace(
        "libc = ctypes.CDLL(None, use_errno=True)",
        "class Libc:\n"
        "    real = ctypes.CDLL(None, use_errno=True)\n"
        "    def __getattr__(self, name):\n"
        "        refuse = lambda *_: (ctypes.set_errno(1), -1)[1]\n"
        f"        return refuse if name == {function!r} else getattr(self.real, name)\n"
        "libc = Libc()",
    )
    (place / "sandbox.py").write_text(text)
    monkeypatch.setattr(confinement, "_SANDBOX", ("-I", "-S", str(place / "sandbox.py")))
