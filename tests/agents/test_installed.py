"""Which agents are here."""

from abreast.agents.installed import look_for
from tests.agents.stubs import stub_runner, write_stub


def test_an_agent_is_installed_with_a_version_and_signed_in_or_not(tmp_path, monkeypatch):
    program = write_stub(tmp_path, "print('stub 1.2'); sys.exit('out' in sys.argv)")
    monkeypatch.delenv("STUB_KEY", raising=False)
    here = {"version": (str(program),), "keys": ("STUB_KEY",)}
    agents = [
        stub_runner(program, account=(str(program), "in"), **here),
        stub_runner(program, account=(str(program), "out"), **here),
        stub_runner(program, **here),
        stub_runner(tmp_path / "none", **here),
        stub_runner(program, version=(str(tmp_path / "none"),)),
    ]
    signed_in, signed_out, unknown, missing, silent = look_for(agents)
    assert signed_in.sentence() == f"stub 1.2, signed in, at {program}"
    assert signed_out.sentence() == f"stub 1.2, not signed in, at {program}"
    assert unknown.sentence() == f"stub 1.2, account unknown, at {program}"
    assert missing.sentence() == "not installed"
    assert silent.sentence() == f"version unknown, account unknown, at {program}"
    monkeypatch.setenv("STUB_KEY", "invented")
    assert "with the key in STUB_KEY" in look_for(agents)[1].sentence()
