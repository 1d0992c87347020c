"""A value in a shell script is data: real shells print any value, at any place, unchanged."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.files.expressions import ExpressionFailed
from abreast.jobs.workflow.shell.script import ScriptInvalid, parse_script
from tests.properties import tried

SHELLS = [["sh"], ["bash", "--posix"], ["bash"], ["busybox", "sh"]]

VALUES = {
    "empty": "",
    "plain": "red",
    "words": "two words  and more",
    "command": "$(touch pwned)",
    "backticks": "`touch pwned`",
    "semicolon": "a; touch pwned",
    "and": "a && touch pwned",
    "pipe": "a | touch pwned; b",
    "background": "a & touch pwned &",
    "single": "it's; touch pwned; echo 'x",
    "double": 'say "x"; touch pwned; echo "y',
    "both": "'\"; touch pwned; \"'",
    "close-single": "'; touch pwned; '",
    "close-double": '"; touch pwned; "',
    "close-substitution": ") ; touch pwned; (",
    "close-brace": "}; touch pwned; {",
    "newline": "a\ntouch pwned\nb",
    "end-of-document": "EOF\ntouch pwned\n",
    "comment": "# touch pwned",
    "ifs": "touch$IFS pwned",
    "variable": "$HOME ${HOME} $ABREAST_1 $$ $#",
    "formula": "a[$(touch pwned)]",
    "glob": "* ? [a-z] ~ ~root {a,b}",
    "tilde": "~",
    "dash": "-n -e --help",
    "backslashes": "\\n \\\\ \\' \\\" \\$ \\",
    "trailing": "a\n\n\n",
    "leading": "\n\t a",
    "unicode": "äöü \u0101\u0081 \u00e9 \U0001f600 \u2028",
    "control": "\x01\x02\x1b\x7f\x81\x88",
    "carriage": "a\r\nb",
    "redirect": "> pwned",
    "braces": "{{ item }} }} {{",
    "percent": "%s %d %%",
    "100 kB": "x'\"$`\\\n " * 12_500,
    "300 kB": "abc $(touch pwned) " * 16_000,
}

# Each prints the value and then a bar; `{{ v }}` is at the tested place.
PLACES = {
    "bare": "printf '%s|' {{ v }}",
    "double": "printf '%s|' \"{{ v }}\"",
    "single": "printf '%s|' '{{ v }}'",
    "double with text": 'x="a{{ v }}b"; x=${x#a}; printf \'%s|\' "${x%b}"',
    "single with text": "x='a{{ v }}b'; x=${x#a}; printf '%s|' \"${x%b}\"",
    "between quotes": "printf '%s|' ''\"{{ v }}\"''",
    "assignment": "x={{ v }}\nprintf '%s|' \"$x\"",
    "assignment in double": 'x="{{ v }}"; printf \'%s|\' "$x"',
    "exported": "export X={{ v }}; printf '%s|' \"$X\"",
    "for": "for f in {{ v }}; do printf '%s|' \"$f\"; done",
    "substitution": "x=$(printf '%s|' {{ v }}); printf '%s' \"$x\"",
    "substitution in double": "printf '%s' \"$(printf '%s|' \"{{ v }}\")\"",
    "single in substitution": "printf '%s' \"$(printf '%s|' '{{ v }}')\"",
    "backticks": "x=`printf '%s|' {{ v }}`; printf '%s' \"$x\"",
    "double in backticks": "x=`printf '%s|' \"{{ v }}\"`; printf '%s' \"$x\"",
    "single in backticks": "x=`printf '%s|' '{{ v }}'`; printf '%s' \"$x\"",
    "here": "cat <<EOF\n{{ v }}|\nEOF",
    "here in double": "cat <<EOF\n\"'{{ v }}|\nEOF",
    "quoted here": "cat <<'EOF'\n{{ v }}|\nEOF",
    "quoted here with signs": 'cat <<"EOF"\n$HOME `x` \\n \\{{ v }}|\nEOF',
    "here with tabs": "cat <<-EOF\n\t{{ v }}|\n\tEOF",
    "here in substitution": "x=$(cat <<EOF\n{{ v }}|\nEOF\n)\nprintf '%s' \"$x\"",
    "substitution in here": "cat <<EOF\n$(printf '%s|' \"{{ v }}\")\nEOF",
    "two here": "cat <<A; cat <<'B'\n{{ v }}|\nA\n$x\nB",
    "subshell": "(printf '%s|' {{ v }})",
    "function": "f() { printf '%s|' \"$1\"; }; f {{ v }}",
    "case": "case a in (b) ;; a) printf '%s|' {{ v }};; esac",
    "case in substitution": (
        "x=$(case a in b) ;; a) printf '%s|' '{{ v }}' ;; esac); printf '%s' \"$x\""
    ),
    "condition": "if [ -n x ] && [ {{ v }} = '{{ v }}' ]; then printf '%s|' \"{{ v }}\"; fi",
    "after a comment": "# it's {{ v }} `\nprintf '%s|' {{ v }}",
    "after a comment over lines": "# {{ v\n }} x\nprintf '%s|' {{ v }}",
    "continued": "printf \\\n '%s|' \\\n {{ v }}",
    "braces": "{ printf '%s|' {{ v }}; }",
    "pipe": "printf '%s|' {{ v }} | cat",
    "after parameters": "set -- a; x=${1:-\"b'\"}$#; printf '%s|' {{ v }}",
    "argument of sh -c": "sh -c 'printf %s\\| \"$1\"' _ {{ v }}",
}
AROUND = {"here in double": ("\"'", ""), "quoted here with signs": ("$HOME `x` \\n \\", "")}
AS_ARGUMENT = {"argument of sh -c"}
# One shell runs all scripts of a place, each in a shell forked from it.
EACH = 'for n; do (cd "$n" && . "../$n.sh") >"$n.out" 2>"$n.err" </dev/null; done; :'


def shells():
    found = [command for command in SHELLS if shutil.which(command[0])]
    return [pytest.param(command, id=" ".join(command)) for command in found]


def run(script, shell, folder):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.parent / f"{folder.name}.sh"
    file.write_bytes(script.encode())
    done = subprocess.run(
        [*shell, str(file)], cwd=folder, capture_output=True, timeout=60, check=False
    )
    assert list(folder.iterdir()) == [], "the value was run"
    return done


def printed(text, value, shell, folder):
    done = run(parse_script(text).render({"v": value}), shell, folder)
    assert done.stderr == b""
    return done.stdout.decode()


@pytest.mark.parametrize("shell", shells())
@pytest.mark.parametrize("place", PLACES)
def test_a_value_is_printed_as_it_is_wherever_it_stands(place, shell, tmp_path):
    before, after = AROUND.get(place, ("", ""))
    script = parse_script(PLACES[place])
    # An argument has a greatest length.
    values = {
        name: value
        for name, value in VALUES.items()
        if place not in AS_ARGUMENT or len(value) < 99_000
    }
    for name, value in values.items():
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.sh").write_bytes(script.render({"v": value}).encode())

    subprocess.run([*shell, "-c", EACH, "sh", *values], cwd=tmp_path, timeout=60, check=True)

    for name, value in values.items():
        assert list((tmp_path / name).iterdir()) == [], f"{name} was run"
        assert (tmp_path / f"{name}.err").read_bytes() == b"", name
        said = (tmp_path / f"{name}.out").read_bytes().decode()
        end = said.rindex("|") + 1
        assert said[:end] == f"{before}{value}|{after}", name


@pytest.mark.parametrize("shell", shells())
@tried(60)
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_text_comes_through_every_quote(shell, value, tmp_path_factory):
    text = (
        "printf '%s|' {{ v }} \"{{ v }}\" 'a{{ v }}' \"$(printf '%s' '{{ v }}.')\"; "
        "cat <<EOF\n{{ v }}|\nEOF"
    )

    said = printed(text, value, shell, tmp_path_factory.mktemp("any") / "in")

    assert said == f"{value}|{value}|a{value}|{value}.|{value}|\n"


@pytest.mark.parametrize("shell", shells())
@tried(150)
@given(
    parts=st.lists(
        st.sampled_from(
            [
                "{{ v }}",
                "'",
                '"',
                "`",
                "$(",
                ")",
                "(",
                "${",
                "}",
                "$x",
                "\\",
                "\n",
                " ",
                "#",
                "<<EOF\n",
                "\nEOF\n",
                "a",
                "=",
                ";",
                "|",
                "&&",
                "case x in ",
                "esac",
                "if ",
                "$'",
                "{",
                "[ ",
                " ]",
                "echo ",
                "x=",
                "<<'EOF'\n",
                "*",
            ]
        ),
        max_size=14,
    )
)
def test_no_text_around_a_value_makes_the_shell_run_it(shell, parts, tmp_path_factory):
    text = "".join(["echo {{ v }}", *parts])
    try:
        script = parse_script(text)
    except ScriptInvalid:
        return
    folder = tmp_path_factory.mktemp("odd")
    value = (
        "'; touch pwned '\"; touch pwned \"$(touch pwned)`touch pwned`\n"
        "touch pwned\nEOF\ntouch pwned\n"
    )

    (folder / "in").mkdir()
    (folder / "in.sh").write_text(script.render({"v": value}))
    subprocess.run(
        [*shell, "../in.sh"],
        cwd=folder / "in",
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )

    assert not (folder / "in" / "pwned").exists()


# --- how values are written


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "True"),
        (False, "False"),
        (3, "3"),
        (1.5, "1.5"),
        (2.0, "2.0"),
        ("", ""),
        ([1, "ä", None], '[1, "ä", null]'),
        ({"b": 1, "a": [True]}, '{"a": [true], "b": 1}'),
        ([], "[]"),
    ],
)
def test_a_number_is_its_text_and_a_list_is_json(value, text, tmp_path):
    assert printed("printf '%s|' {{ v }}", value, ["sh"], tmp_path / "in") == f"{text}|"


def test_the_same_block_is_one_variable_and_none_is_exported(tmp_path):
    script = parse_script('echo "{{ v }}" {{ v }} {{ w }}; env').render({"v": "x", "w": "y"})

    assert script.startswith(
        'ABREAST_1=\'x\'\nABREAST_2=\'y\'\necho "${ABREAST_1}" "${ABREAST_1}" "${ABREAST_2}"'
    )
    said = run(script, ["sh"], tmp_path / "in").stdout
    assert said.startswith(b"x x y\n")
    assert not re.search(rb"^ABREAST_\d", said, re.MULTILINE)


def test_a_script_without_blocks_stays_as_it_is():
    text = "echo 'unclosed $(( ${ <<EOF {% x %} {# y #} {{"
    assert parse_script(text).render({}) == text
    assert parse_script(text).names == frozenset()


def test_what_a_script_reads_is_known():
    script = parse_script('echo {{ steps.a.output.x }} "{{ item }}" # {{ inputs.old }}')
    assert script.names == {("steps", "a", "output", "x"), ("item",)}


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_text_that_no_shell_can_take_is_refused(value):
    with pytest.raises(ExpressionFailed, match=r"NUL|half a character"):
        parse_script("echo {{ v }}").render({"v": value})


def test_a_script_that_is_too_long_is_refused():
    with pytest.raises(ExpressionFailed, match="longer than"):
        parse_script("echo {{ v }} {{ w }}").render({"v": "x" * 2**22, "w": "'" * 2**22})


# --- raw


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ v | raw }}", "hi\n"),
        ("{{ v | trim | raw }}; echo {{ w }}", "hi\n*\n"),
        ("x=$({{ v | raw }}); echo $x", "hi\n"),
        ("echo ${nothing-{{ w | raw }}}hi | tail -c 3", "hi\n"),
    ],
)
def test_raw_is_code(text, said, tmp_path):
    script = parse_script(text)
    assert (
        run(script.render({"v": "echo hi", "w": "*"}), ["sh"], tmp_path / "in").stdout.decode()
        == said
    )
    assert script.warnings == ()


@pytest.mark.parametrize(
    "text",
    ["{{ v | raw | trim }}", "{{ [v | raw] }}", "{{ v | raw(1) }}", "{{ v if w else v | raw }}"],
)
def test_raw_is_the_last_filter_or_none(text):
    with pytest.raises(ScriptInvalid, match="raw"):
        parse_script(text)


# --- formulas


@pytest.mark.parametrize("value", [5, "5", " 5\n", 5.0, "+5", "005"])
@pytest.mark.parametrize("shell", shells())
def test_a_whole_number_may_stand_in_a_formula(value, shell, tmp_path):
    assert (
        printed("echo $(( 2 - {{ v }} )) $((3*({{v}}+1)))", value, shell, tmp_path / "in")
        == "-3 18\n"
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "a[$(touch pwned)]",
        "x",
        "",
        1.5,
        [1],
        "9" * 30,
        2**70,
        float("inf"),
        float("nan"),
    ],
)
def test_nothing_else_may_stand_in_a_formula(value):
    with pytest.raises(ExpressionFailed, match="whole number"):
        parse_script("echo $(( 1 + {{ v }} ))").render({"v": value})


# --- refused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("echo ${x:-{{ v }}}", "variable first"),
        ('echo "${x:-$(echo {{ v }})}"', "variable first"),
        ("echo $'a{{ v }}'", 'use "..."'),
        ("echo $'a\\'b' {{ v }}", "backslash"),
        ("(( {{ v }} > 1 ))", "use $(( ))"),
        ("echo $[ {{ v }} ]", "use $(( ))"),
        ("let x={{ v }}", "use $(( ))"),
        ("[[ {{ v }} -eq 1 ]]", "use [ ]"),
        ("echo >&{{ v }}", "after >&"),
        ("a[{{ v }}]=1", "brackets of an array"),
        ("a['{{ v }}']=1", "brackets of an array"),
        ("a[b[1]==2+{{ v }}]=1", "brackets of an array"),
        ("a=(x [{{ v }}]=1)", "brackets of an array"),
        ('if true; then a[1+"{{ v }}"]=1; fi', "brackets of an array"),
        ("echo >& '{{ v }}'", "after >&"),
        ('cat <&"a{{ v }}"', "after >&"),
        ("unset {{ v }}", "write the name out"),
        ("declare -i {{ v }}", "write the name out"),
        ('sudo declare "{{ v }}"', "write the name out"),
        ("read -r {{ v }}", "write the name out"),
        ("[ -v {{ v }} ]", "write the name out"),
        ("printf -v '{{ v }}' x", "write the name out"),
        ("echo ${{ v }}", "right before"),
        ('echo "${{ v }}"', "right before"),
        ("cat <<EOF\n${{ v }}\nEOF", "right before"),
        ("echo \\{{ v }}", "right before"),
        ('echo "\\{{ v }}"', "right before"),
        ("cat <<EOF\n\\{{ v }}\nEOF", "right before"),
        ("cat <<{{ v }}\nx\n", "ends it"),
        ("cat <<\n{{ v }}", "ends it"),
        ("cat <<'A B'\n{{ v }}\nA B", "of letters"),
        ("cat <<'EOF'\n{{ v | raw }}\nEOF", "leave it out"),
        ("cat <<A $(cat <<B\n{{ v }}\nB\n)\nA", "lines of its own"),
        ("cat <<EOF\n$(echo\nEOF\n{{ v }}", "not closed in this here-document"),
        ("x=`cat <<E\n{{ v }}\nE\n`", "use $( )"),
        ("x=`echo \\`echo {{ v }}\\``", "use $( )"),
        ("x=`echo '`' {{ v }}", "use $( )"),
        ('x=`echo "{{ v }}`"', "use $( )"),
        ("echo '{{ v }}", "never closed"),
        ('echo "{{ v }}', "never closed"),
        ("echo $(echo {{ v }}", "never closed"),
        ("echo $((echo {{ v }}); echo)", "with a space"),
        ("(" * 200 + "{{ v }}", "too deeply"),
        ("cat" + " <<A" * 40 + " {{ v }}", "too many"),
        ("echo {{ v b }}", "can't be read"),
        ("echo {{ 'v }}", "quote is not closed"),
    ],
)
def test_where_no_value_can_stand_is_said_at_load(text, sentence):
    with pytest.raises(ScriptInvalid) as raised:
        parse_script(text)
    assert sentence in str(raised.value)
    assert 0 <= raised.value.at <= len(text)


# --- warned about


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("eval {{ v }}", "eval"),
        ('eval "echo {{ v }}"', "eval"),
        ('sh -c "echo {{ v }}"', "sh -c"),
        ("sh -c 'echo {{ v }}'", "sh -c"),
        ('/bin/bash -ec "{{ v }}"', "bash -ec"),
        ("sudo -u me bash -c {{ v }}", "bash -c"),
        ("python3 -c \"print('{{ v }}')\"", "python3 -c"),
        ("python3.12 -c \"print('{{ v }}')\"", "python3.12 -c"),
        ("perl -e '{{ v }}'", "perl -e"),
        ("node -e '{{ v }}'", "node -e"),
        ("ssh host ls {{ v }}", "ssh"),
        ("ls | xargs -I% sh -c 'echo {{ v }} %'", "sh -c"),
        ("echo {{ v }} | sh", "sh"),
        ("echo {{ v }} | cat | bash -s", "bash"),
        ("(echo {{ v }}) | python3 -", "python3"),
        ("echo $(echo {{ v }}) | xargs sh -c", "xargs sh"),
        ("sh <<EOF\necho {{ v }}\nEOF", "sh"),
        ("python3 - <<'EOF'\nprint('{{ v }}')\nEOF", "python3"),
        ("ssh host <<EOF\n{{ v }}\nEOF", "ssh"),
        ("psql db <<EOF\n{{ v }}\nEOF", "psql"),
        ("psql -c \"select '{{ v }}'\"", "psql -c"),
        ('trap "echo {{ v }}" EXIT', "trap"),
        ("awk '/{{ v }}/'", "awk"),
        ('sed -n "s/x/{{ v }}/" file', "sed"),
        ("jq '.x = \"{{ v }}\"'", "jq"),
        ('su me -c "{{ v }}"', "su -c"),
        ("if true; then eval {{ v }}; fi", "eval"),
        ('x=$(sh -c "{{ v }}")', "sh -c"),
        ('sh -c "echo $(echo {{ v }})"', "sh -c"),
        ("case x in x) eval {{ v }};; esac", "eval"),
    ],
)
def test_a_value_that_is_read_as_code_again_gets_a_warning(text, who):
    ((at, sentence),) = parse_script(text).warnings
    assert text[at:].startswith("{{ v }}")
    assert sentence.startswith(f"{who} reads this value as code")


@pytest.mark.parametrize(
    "text",
    [
        "{{ v }}",
        '"{{ v }}" --help',
        "x=1 {{ v }}",
        "cd a && {{ v }}",
        "if {{ v }}; then echo; fi",
        "a\n{{ v }}",
        "x=$({{ v }})",
        "({{ v }})",
        "f() { {{ v }}; }",
        "case x in a) {{ v }};; esac",
        "! {{ v }}",
    ],
)
def test_a_value_that_is_the_command_gets_a_warning(text):
    ((at, sentence),) = parse_script(text).warnings
    assert at == text.index("{{")
    assert "| raw" in sentence


def test_a_value_that_a_formula_reads_gets_a_warning():
    ((at, sentence),) = parse_script("n={{ v }}; m=2; echo $(( n + m ))").warnings
    assert (at, sentence) == (21, "n holds a value, which this formula reads as a formula too")
    ((_, sentence),) = parse_script("echo $(( $(wc -c {{ v }}) ))").warnings
    assert "formula" in sentence


@pytest.mark.parametrize(
    "text",
    [
        "echo {{ v }}",
        "sh -c 'echo \"$1\"' _ {{ v }}",
        "python3 x.py {{ v }}",
        "python3 x.py <<EOF\n{{ v }}\nEOF",
        "awk -v x={{ v }} '{ print x }'",
        "awk -v x={{ v }} '{ print x }' {{ v }}",
        "sed s/a/b/ {{ v }}",
        "jq --arg x {{ v }} .x",
        "for f in {{ v }}; do :; done",
        "case {{ v }} in {{ v }}) ;; esac",
        "> {{ v }}",
        "./{{ v }}.sh",
        "x={{ v }}",
        "x={{ v }} y=2 cmd",
        "ls [{{ v }}]*",
        "a[1]={{ v }}",
        "case x in ({{ v }}) ;; *) ;; esac; echo {{ v }}",
        "echo {{ v }} | grep sh",
        "echo a | sh; echo {{ v }}",
        "echo {{ v }} || sh",
        "echo a 2>&1 {{ v }} > {{ v }}",
        "export x={{ v }}",
        "read -p {{ v }} x",
        "cat <<A\n{{ v }}\nA\necho {{ v }}",
        "f() (echo {{ v }})",
        "echo {{ v }} # eval {{ v\n }} `",
        "[ {{ v }} -eq 1 ]",
        "cat <<<{{ v }}",
        "diff <(cat {{ v }}) x",
        "echo $((1 << 2)) {{ v }}",
        'echo "a{b" \'{\' $\'x\' "${a%"}"}" {{ v }}',
        "x=a#b; echo {{ v }}",
        "(cat) > {{ v }}",
        "case a in esac; echo {{ v }}",
        "case a in b) echo;; c) echo\nesac\necho {{ v }}",
        "cat <<EOF\na\\\nEOF\n{{ v }}\nEOF",
        "cat <<EOF\n{{ v }}",
        "echo $( (cat); cat) {{ v }}",
        "echo $((cat); cat) {{ v }}",
        "[ -n x ] && echo `date # x` {{ v }}",
        'echo "`date "{{ v }}"`" $$ $? {{ v }}',
        "a=(x {{ v }})",
        "echo )",
    ],
)
def test_everything_else_gets_none(text):
    assert parse_script(text).warnings == ()
