#!/bin/sh
# Commands over lines: some succeed, one fails and is mended, and the results are exported.
# Run it with `sh examples/map_commands.sh`; it works in a directory of its own, and removes it.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
touch abreast.toml # makes it a project: the runs are recorded in .abreast/ here

for name in alpha beta delta; do echo "the text of $name" > "$name.txt"; done
printf '%s\n' alpha beta gamma delta > names

echo "--- a command for every line, four at once; one fails"
abreast map --name count --width 4 -- wc -w {}.txt < names || echo "exit code $?"

echo "--- mend it, and run again what failed"
echo "found at last" > gamma.txt
abreast retry count

echo "--- the results, with exit codes, output and times"
abreast export count -o count.jsonl --quiet
grep -c '"state":"done"' count.jsonl
