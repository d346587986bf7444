#!/usr/bin/env python3
"""Writes the bash completion of `lockstep`, from the output of `lockstep --describe`.

usage: completion.py PROGRAM OUTPUT
"""

import json
import re
import subprocess
import sys

SCRIPT = """\
# Completion of lockstep for bash. Made by lessons/runner/man/completion.py.

# Prints what may follow: _lockstep_words COMMAND PLACE, in which PLACE is "options", an
# option whose value comes next, or the number of a positional.
_lockstep_words() {
    case "$1:$2" in
@WORDS@
    esac
}

# Succeeds if the option of the command is followed by a value.
_lockstep_has_value() {
    case "$1:$2" in
@VALUES@
    esac
    return 1
}

_lockstep() {
    local word=${COMP_WORDS[COMP_CWORD]} command="" slug="" before="" place=1 i each
    # Bash takes --ranks=4 for three words.
    [[ $word == = ]] && word=
    for ((i = 1; i < COMP_CWORD; ++i)); do
        each=${COMP_WORDS[i]}
        if [[ $each == = ]]; then
            continue
        elif [[ -n $before ]]; then
            before=
        elif [[ $each == -* ]]; then
            _lockstep_has_value "$command" "$each" && before=$each
        elif [[ -z $command || $command == assignment ]]; then
            command+=${command:+ }$each
        else
            [[ $place == 1 ]] && slug=$each
            place=$((place + 1))
        fi
    done
    [[ $before == --set ]] && command+=:$slug
    if [[ -n $before ]]; then
        place=$before
    elif [[ $word == -* ]]; then
        place=options
    fi
    mapfile -t COMPREPLY < <(compgen -W "$(_lockstep_words "$command" "$place")" -- "$word")
    [[ ${COMPREPLY-} != *= ]] || compopt -o nospace 2>/dev/null
}

# If there are no words for an argument, file names complete it.
complete -o default -F _lockstep lockstep
"""


def suggested(taken):
    """Returns the words for an option or a positional. f32|f64 lists words; NAME|FILE does not."""
    listed = taken["suggested"]
    if not listed and re.fullmatch(r"[a-z0-9]+(\|[a-z0-9]+)+", taken["value"]):
        listed = taken["value"].split("|")
    return [re.sub(r"\s", "-", word) for word in listed]


def words_by_place(description):
    """Returns the words that may follow, by command and place."""
    words = {("", "1"): [], ("", "options"): ["--help", "--version"]}

    def add(command, place, more):
        known = words.setdefault((command, place), [])
        known += [word for word in dict.fromkeys(more) if word not in known]

    for command in description["commands"]:
        name = command["name"]
        group, _, member = name.rpartition(" ")
        add("", "1", [group or name])
        if group:
            add(group, "1", [member])
        options = command["options"]
        add(name, "options", ["--help"] + [option["name"] for option in options])
        for option in options:
            add(name, option["name"], suggested(option))
        for number, positional in enumerate(command["positionals"], 1):
            add(name, str(number), suggested(positional))
    keys = {part["lesson"]: [setting["key"] + "=" for setting in part["settings"]]
            for part in description["settings"]}
    for command in ("lesson", "compare"):
        for lesson, own in keys.items():
            add(f"{command}:{lesson}", "--set", keys[""] + own)
    return {place: listed for place, listed in words.items() if listed}


def completion(description):
    words = "\n".join(f'        "{command}:{place}") echo "{" ".join(listed)}" ;;'
                      for (command, place), listed in words_by_place(description).items())
    with_value = dict.fromkeys(f'{command["name"]}:{option["name"]}'
                               for command in description["commands"]
                               for option in command["options"] if option["value"])
    values = "\n".join(f'        "{each}") return 0 ;;' for each in with_value)
    return SCRIPT.replace("@WORDS@", words).replace("@VALUES@", values)


def main():
    program, output = sys.argv[1:]
    described = subprocess.run([program, "--describe"], check=True, capture_output=True).stdout
    with open(output, "w", encoding="utf-8") as file:
        file.write(completion(json.loads(described)))


if __name__ == "__main__":
    main()
