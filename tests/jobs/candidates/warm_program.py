"""What a process that `warm_child` has forked runs: the main program of the child."""

import sys

from abreast.jobs.candidates.child.main import main

main(sys.argv.pop())
