"""`abreast ask`: what it says while a provider is down."""

from abreast.cli.commands.ask import NOTICE_AFTER, OutageNotice
from abreast.core.errors import Unavailable
from abreast.limits.server_hold import ServerHold
from abreast.run.calls.outage import CallOutage, LaneOutage


class Timers:
    """Timers that are run by hand."""

    def __init__(self):
        self.set = []
        self.cancelled = 0

    def later(self, seconds, call):
        self.set.append((seconds, call))
        return self

    def cancel(self):
        self.cancelled += 1

    def run(self):
        seconds, call = self.set.pop()
        assert seconds == NOTICE_AFTER
        call()


def test_an_outage_is_told_once_and_only_while_it_lasts(capsys):
    outage, timers = LaneOutage("mine", ServerHold(), 300.0), Timers()
    notice = OutageNotice(outage, timers.later)
    timers.run()
    assert capsys.readouterr().err == ""
    outage.begun(CallOutage(), Unavailable("mine answered 503: overloaded"), outage.episode, 0.0)
    timers.run()
    said = capsys.readouterr().err
    assert "waiting, up to 300 s, for a provider that is down: mine answered 503" in said
    assert (said.count("\n"), timers.set) == (1, [])
    notice.cancel()
    assert timers.cancelled == 1
    outage.got_through(outage.episode, 1.0)
    assert outage.reason is None
