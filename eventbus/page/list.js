// @ts-check
// The list of events: a real table, a row an event, opened where it stands.
import { Component, html, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { Ago, At, Command, Go, Message, number, ObjectLink, Type } from "./parts.js";
import { objectAddress } from "./address.js";
import { block, essence, line, shellWord } from "./text.js";
import { duration } from "./time.js";

/** Rows drawn at a time. */
export const PAGE = 500;
const COLUMNS = ["Last seen", "Type", "Reason", "Object", "How often", "Message", "Source"];

/** *selected*: the key of the row with the focus; *open*: the key of the row that shows its details. */
export function List({ rows, selected, open, goesOn, onSelect, onOpen, onGo }) {
  const [most, setMost] = useState(PAGE);
  const body = useRef(null);
  // Set the focus together with the drawing, not a frame later: after two quick keys, the first would take the focus back from
  // the second, and so on without end, because the row with the focus becomes the selected one.
  useLayoutEffect(() => {
    if (!selected) return;
    const row = body.current?.querySelector(`[data-key="${CSS.escape(selected)}"]`);
    // Rows that change places lose the focus with some browsers.
    if (
      row &&
      document.activeElement !== row &&
      (!body.current.contains(document.activeElement) || document.activeElement.closest("tr")?.dataset.key !== selected)
    ) {
      row.focus({ preventScroll: true });
      row.scrollIntoView({ block: "nearest" });
    }
  }, [selected]);
  const shown = rows.slice(0, most);
  return html`<div class="list long">
    <table role="table" aria-label="Events" aria-rowcount=${rows.length + 1}>
      <thead role="rowgroup"><tr role="row">${COLUMNS.map((name) => html`<th role="columnheader" scope="col" key=${name} class=${classOf(name)}>${name}</th>`)}</tr></thead>
      <tbody role="rowgroup" ref=${body}>
        ${shown.map((row, place) => [
          html`<${Row} key=${row.key} row=${row} goes=${goesOn.has(row.key)}
            stop=${selected ? selected === row.key : place === 0} open=${open === row.key} onSelect=${onSelect} onOpen=${onOpen} onGo=${onGo} />`,
          open === row.key && html`<${Details} key=${`${row.key} details`} row=${row} onGo=${onGo} />`,
        ])}
      </tbody>
    </table>
    ${
      rows.length > most &&
      html`<p class="end"><button type="button" onClick=${() => setMost(most + PAGE)}>Show ${Math.min(PAGE, rows.length - most)} more of ${rows.length - most}</button></p>`
    }
  </div>`;
}

const classOf = (name) => name.toLowerCase().replaceAll(" ", "-");

/** Drawn again only if one of these properties changes. */
class Row extends Component {
  shouldComponentUpdate(next) {
    const { row, goes, stop, open } = this.props;
    return row !== next.row || goes !== next.goes || stop !== next.stop || open !== next.open;
  }

  render({ row, goes, stop, open, onSelect, onOpen, onGo }) {
    const toggle = (happened) => {
      if (happened.target.closest("a, button") || String(getSelection())) return;
      onSelect(row.key);
      onOpen(open ? "" : row.key);
    };
    return html`<tr role="row" data-key=${row.key} tabindex=${stop ? 0 : -1}
      class=${`row${row.warning ? " warns" : ""}${row.gone ? " gone" : ""}${open ? " open" : ""}`}
      onClick=${toggle} onFocus=${() => onSelect(row.key)}>
      <td role="cell" class="last-seen"><button type="button" class="opener" tabindex="-1" aria-expanded=${open ? "true" : "false"} aria-label="Details" onClick=${() => (onSelect(row.key), onOpen(open ? "" : row.key))}></button><${Ago} ms=${row.last} /></td>
      <td role="cell" class="type"><${Type} warning=${row.warning} type=${row.type} /></td>
      <td role="cell" class="reason" title=${row.reason}>${row.reason}</td>
      <td role="cell" class="object-cell"><${ObjectLink} about=${{ ...row.about, namespace: row.about.namespace || "" }} onGo=${onGo} /></td>
      <td role="cell" class="how-often">${often(row)}${goes && html` <span class="goes-on">still failing</span>`}${row.gone && html` <span class="faint">expired</span>`}</td>
      <td role="cell" class="message" title=${row.message}><span class="text">${essence(row.event.message)}</span></td>
      <td role="cell" class="source" title=${row.source}>${row.source}</td>
    </tr>`;
  }
}

/** x41 over 3h; once has no number. */
export function often(row) {
  if (row.count < 2) return html`<span class="faint">once</span>`;
  const over = duration((row.last - row.first) / 1000);
  return html`<b>×${number(row.count)}</b> over ${over}`;
}

function Details({ row, onGo }) {
  const { event, about } = row,
    [raw, setRaw] = useState(false);
  const place = row.namespace || "default",
    target = `${line(about.kind).toLowerCase()}/${line(about.name)}`;
  const pairs = [
    ["First seen", html`<${At} ms=${row.first} />, <${Ago} ms=${row.first} suffix=" ago" />`],
    ["Last seen", html`<${At} ms=${row.last} />, <${Ago} ms=${row.last} suffix=" ago" />`],
    ["Count", number(row.count)],
    [
      "Object",
      html`<${ObjectLink} about=${about} onGo=${onGo} />${about.fieldPath ? ` ${line(about.fieldPath)}` : ""}${about.namespace ? ` in ${line(about.namespace)}` : ""}`,
    ],
    ["Source", `${row.source}${row.host ? ` on ${row.host}` : ""}`],
    ["Action", line(event.action)],
    ["Related", event.related && html`<${ObjectLink} about=${event.related} onGo=${onGo} />`],
    ["Labels", labels(event.metadata.labels)],
    ["Annotations", labels(event.metadata.annotations)],
    ["Name", `${row.namespace}/${line(event.metadata.name)}`],
  ].filter(([, value]) => value);
  return html`<tr role="row" class="details"><td role="cell" colspan=${COLUMNS.length}>
    <p class="whole"><${Message} text=${event.message} /></p>
    <dl>${pairs.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <p class="commands">
      <${Go} to=${objectAddress(about)} onGo=${onGo}>The story of ${line(about.kind)}/${line(about.name)}<//>
      <${Command} text=${`kubectl get event -n ${shellWord(place)} ${shellWord(event.metadata.name)} -o yaml`} />
      <${Command} text=${`eventbus why ${shellWord(target)} -n ${shellWord(place)}`} />
      <button type="button" aria-expanded=${raw ? "true" : "false"} onClick=${() => setRaw(!raw)}>JSON</button>
    </p>
    ${raw && html`<pre tabindex="0" aria-label="The event as JSON">${block(JSON.stringify(event, null, 2))}</pre>`}
  </td></tr>`;
}

function labels(map) {
  return Object.entries(map ?? {})
    .map(([key, value]) => line(`${key}=${value}`))
    .join(", ");
}
