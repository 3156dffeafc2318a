"""`eventbus completion`, and the names that it offers on Tab. Nothing here imports redis."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from eventbus.cli.printers.output import write

#: As click's own, but without a space after `burst=` and `pod/`. Works with bash before 4.4 too, as on macOS.
#: bash splits words at colons and inserts answers after the last one: `export:NAME` is joined, and then trimmed.
BASH = """\
_eventbus_completion() {
    local IFS=$'\\n' response kind value word words=() cword=0 begun= line=$COMP_LINE i
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        if ((i)) && [[ $line != [[:space:]]* && ($word == :* || ${words[${#words[@]} - 1]} == *:) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        ((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
        line=${line#*"$word"}
    done
    word=${words[cword]}
    [[ $COMP_WORDBREAKS == *:* ]] && begun=${word%"${word##*:}"}
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$cword _EVENTBUS_COMPLETE=bash_complete "$1")
    COMPREPLY=()
    for completion in $response; do
        IFS=',' read -r kind value <<< "$completion"
        case $kind in
            dir) compopt -o dirnames 2>/dev/null ;;
            file) compopt -o default 2>/dev/null ;;
            plain) COMPREPLY+=("${value#"$begun"}") ;;
        esac
        [[ $value == *[=/] ]] && compopt -o nospace 2>/dev/null
    done
    return 0
}

complete -o nosort -F _eventbus_completion eventbus 2>/dev/null || complete -F _eventbus_completion eventbus
"""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands, options and names when Tab is pressed.

    Names are those on the bus, as long as it answers within a second: groups, namespaces, objects with events. Nothing
    is started for them.

    \b
    Examples:
      source <(eventbus completion bash)                        # for this shell; in ~/.bashrc for all
      eventbus completion zsh > "${fpath[1]}/_eventbus"         # with compinit in ~/.zshrc; then a new shell
      eventbus completion fish > ~/.config/fish/completions/eventbus.fish
    """
    from click.shell_completion import get_completion_class

    if shell == "bash":
        write(BASH)
        return
    shell_class = get_completion_class(shell)
    assert shell_class is not None, shell
    write(shell_class(click.Command("eventbus"), {}, "eventbus", "_EVENTBUS_COMPLETE").source())


def complete_files(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[CompletionItem[Any]]:
    """Leave the completion of file names to the shell."""
    return [CompletionItem(begin, type="file")]


def complete_forms(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the values of `-o` of `eventbus get`."""
    return _beginning(["wide", "json", "yaml", "name", "jsonpath="], begin)


def complete_types(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the types of events, also after a comma."""
    from eventbus.model.event import EventType

    before, comma, last = begin.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in EventType if kind.lower().startswith(last.lower())]


def complete_options(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer `burst=` and the others of `eventbus options set`."""
    import msgspec

    from eventbus.settings import Options

    return _beginning([f"{field.name}=" for field in msgspec.structs.fields(Options)], begin)


def complete_groups(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer consumer groups."""
    from eventbus.cli.bus_names import ask_bus

    return _beginning(ask_bus(lambda bus: bus.groups()), begin)


def complete_deletable(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the arguments of `eventbus group delete`: consumer groups, `export:NAME` of each sink, `worker:notify`."""
    from eventbus.cli.bus_names import ask_bus

    return _beginning(ask_bus(lambda bus: [*bus.groups(), *bus.sinks(), *bus.notifier()]), begin)


def complete_namespaces(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the namespaces that hold events."""
    from eventbus.cli.bus_names import ask_bus

    return _beginning(ask_bus(lambda bus: bus.namespaces()), begin)


def complete_silences(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the IDs of silences."""
    from eventbus.cli.bus_names import ask_bus

    return ask_bus(lambda bus: bus.silences(begin))


def complete_objects(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer `pod/web-0`, or names after the word `pod`; if no object is known, kinds."""
    from eventbus.cli.bus_names import ask_bus
    from eventbus.model.reference import known_kinds, meant_kinds

    namespace = ctx.params.get("namespace") or "default"
    before = ctx.params.get(parameter.name or "")
    kind, slash, name = (before[0], "/", begin) if before and not isinstance(before, str) else begin.partition("/")
    if not slash:
        objects = ask_bus(lambda bus: bus.objects(namespace, begin))
        return [f"{kind}/{name}" for kind, name in objects] or _beginning([f"{word}/" for word in known_kinds()], begin)
    kinds = list(meant_kinds(kind))
    names = ask_bus(
        lambda bus: [known_name for word in kinds for _, known_name in bus.objects(namespace, f"{word}/{name}")]
    )
    return [known_name if before else f"{kind}/{known_name}" for known_name in dict.fromkeys(names)]


def _beginning(names: list[str], begin: str) -> list[str]:
    return [name for name in names if name.startswith(begin)]
