"""A sandbox on a system that permits less than this one."""

import inspect
import shutil
from pathlib import Path

from abreast.worktrees import confinement
from abreast.worktrees.sandbox import program


def refuse(monkeypatch, place, function):
    """Use a sandbox in which one libc function fails, as it does in many containers."""
    text = inspect.getsource(program).replace(
        "libc = ctypes.CDLL(None, use_errno=True)",
        "class Libc:\n"
        "    real = ctypes.CDLL(None, use_errno=True)\n"
        "    def __getattr__(self, name):\n"
        "        refuse = lambda *_: (ctypes.set_errno(1), -1)[1]\n"
        f"        return refuse if name == {function!r} else getattr(self.real, name)\n"
        "libc = Libc()",
    )
    shutil.copytree(Path(program.__file__).parent, place / "sandbox")
    (place / "sandbox/program.py").write_text(text)
    words = ("-I", "-S", str(place / "sandbox/program.py"))
    monkeypatch.setattr(confinement, "_SANDBOX", words)
