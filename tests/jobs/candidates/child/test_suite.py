"""How the child runs pytest."""

from types import SimpleNamespace

import pytest

from abreast.jobs.candidates.child.suite import skip_foreign_summaries


class Manager(pytest.PytestPluginManager):
    """Takes the plugin of that name for an installed one."""

    def list_plugin_distinfo(self):
        return [(self.get_plugin("installed"), None)]


def test_installed_plugins_add_nothing_to_the_summary_and_others_do():
    manager, called = Manager(), []
    for name in ("installed", "own"):
        hook = staticmethod(lambda name=name: called.append(name))
        manager.register(type("Plugin", (), {"pytest_terminal_summary": hook})(), name)
    config = SimpleNamespace(pluginmanager=manager, hook=manager.hook)
    skip_foreign_summaries(SimpleNamespace(config=config))
    config.hook.pytest_terminal_summary(terminalreporter=None, exitstatus=0, config=config)
    assert called == ["own"]
