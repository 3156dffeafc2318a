"""The options of every `eventbus get`. Does not import the store, so that completion stays fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from eventbus.cli.completion import complete_forms
from eventbus.cli.input.options import together
from eventbus.cli.printers.output import FORMS
from eventbus.model.list_watch import ListOptions
from eventbus.model.names import is_dns_label

if TYPE_CHECKING:
    from eventbus.model.kinds import Kind


#: Page size of a list, as in kubectl.
CHUNK = 500


class GetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The names and options of every kind, unparsed."""

    names: tuple[str, ...] = ()
    namespace: str = ""
    all_namespaces: bool = False
    selector: str = ""
    field_selector: str = ""
    sort_by: str | None = None
    watch: bool = False
    watch_only: bool = False
    output_watch_events: bool = False
    output: str = ""
    no_headers: bool = False
    chunk_size: int = CHUNK
    label_columns: tuple[str, ...] = ()
    show_labels: bool = False
    ignore_not_found: bool = False

    @property
    def watches(self) -> bool:
        """Return True if the command runs until Ctrl-C."""
        return self.watch or self.watch_only

    def names_of(self, kind: Kind[Any]) -> tuple[str, ...]:
        """Return the names; each may have its kind as prefix. Raises: UsageError: they conflict with other options."""
        if not self.names:
            return ()
        if self.all_namespaces:
            raise click.UsageError("a resource cannot be retrieved by name across all namespaces")
        if self.selector or self.field_selector:
            raise click.UsageError("name cannot be provided when a selector is specified")
        if self.watches and len(self.names) > 1:
            raise click.UsageError("watch is only supported on individual resources and resource collections")
        return tuple(_without_kind(kind, name) for name in self.names)

    def place(self, kind: Kind[Any]) -> str:
        """Return the namespace; "": all namespaces, or a kind without namespace. Raises: BadParameter."""
        if self.all_namespaces or not kind.namespaced:
            return ""
        if not is_dns_label(self.namespace):
            raise click.BadParameter(f"{self.namespace!a} is not a DNS label", param_hint="--namespace")
        return self.namespace

    def list_options(self, kind: Kind[Any]) -> ListOptions:
        """Return the options for the store's list."""
        from eventbus.model.selectors import escape_value

        name = "".join(f"metadata.name={escape_value(name)}" for name in self.names_of(kind)[:1])
        return ListOptions(
            namespace=self.place(kind),
            label_selector=self.selector,
            field_selector=name or self.field_selector,
            limit=self.chunk_size,
        )


def _without_kind(kind: Kind[Any], name: str) -> str:
    from eventbus.model.kinds import KINDS

    word, slash, rest = name.partition("/")
    return rest if slash and KINDS.named(word) is kind else name


#: The names and options of `GetOptions`, as in kubectl.
common_options = together(
    click.argument("names", nargs=-1, metavar="[NAME]..."),
    click.option("-l", "--selector", default="", metavar="LABELS", help="Labels: a=b,a!=b,a in (x,y),!a."),
    click.option("--field-selector", default="", metavar="FIELDS", help="Fields: type=Warning,reason!=Pulled."),
    click.option("--sort-by", metavar="JSONPATH|none", help="Order of the list; none: that of the store, as kubectl."),
    click.option("-w", "--watch", is_flag=True, help="After the list, watch for changes until Ctrl-C."),
    click.option("--watch-only", is_flag=True, help="Watch for changes without the list first."),
    click.option("--output-watch-events", is_flag=True, help="With -w: add a column ADDED, MODIFIED or DELETED."),
    click.option("-o", "--output", default="", metavar="FORM", help=f"Output in another form: {FORMS}.",
                 shell_complete=complete_forms),
    click.option("--no-headers", is_flag=True, help="Omit the header line."),
    click.option("--chunk-size", type=click.IntRange(min=0), default=CHUNK, show_default=True,
                 help="Objects to read at once; 0: all."),
    click.option("-L", "--label-columns", multiple=True, metavar="LABEL,…", callback=lambda _ctx, _param, given: tuple(
        label for one in given for label in one.split(",") if label), help="Add a column for each of these labels."),
    click.option("--show-labels", is_flag=True, help="Add a column with all labels."),
    click.option("--ignore-not-found", is_flag=True, help="Ignore missing objects: exit code 0."),
)  # fmt: skip
