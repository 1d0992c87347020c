"""How long it takes to divide 1,000 and 10,000 files."""

from benchmarks.plans.loads import divide, layout


class Division:
    """Mixed directories with imports, and alike files in one directory."""

    params = ([1_000, 10_000], ["mixed", "alike"])
    param_names = ("files", "layout")
    timeout = 120

    def setup(self, files: int, kind: str) -> None:
        self.files = layout(kind, files)

    def time_divide(self, files: int, kind: str) -> None:  # noqa: ARG002 - asv hands it over
        divide(kind, self.files)
