// @ts-check
// The notifications: open groups with their state, silences, and the buttons that silence, acknowledge and expire.
import { html, useState } from "./vendor/preact-htm.js";
import { call, optional } from "./api.js";
import { Ago, At, Card, number, ObjectLink, State, Table, usePolled, useTicking, useViewKeys } from "./parts.js";
import { maySilence, operatorOf, SilenceForm, SILENCES } from "./silence_form.js";
import { line } from "./text.js";
import { duration, parse } from "./time.js";
import { TroubleList } from "./troubles.js";

const EVERY_MS = 5000;
const ACKNOWLEDGEMENTS = "/apis/eventbus.dev/v1/acknowledgements";

async function requestAll(signal) {
  const [groups, silences] = await Promise.all(
    ["/eventbus/v1/notifications", SILENCES].map((path) => optional(call(path, {}, { signal }))),
  );
  return { groups, silences };
}

export function Notifications({ session, onGo, keys }) {
  const { found, error, again } = usePolled(requestAll, EVERY_MS, []);
  const [labels, setLabels] = useState(null),
    [report, setReport] = useState("");
  useViewKeys(keys, { Escape: () => onGo("") });
  if (!found)
    return html`<main id="main" tabindex="-1" aria-label="Notifications" class="health"><h1>Notifications</h1><p class=${error ? "bad" : "faint"} role="status">${error ? error.message : "Loading …"}</p></main>`;
  const { groups, silences } = found;
  const act = async (request, done) => {
    try {
      await request;
      setReport(done);
    } catch (refused) {
      setReport(refused.message);
    }
    again();
  };
  const acts = { session, onSilence: setLabels, onAct: act };
  return html`<main id="main" tabindex="-1" aria-label="Notifications" class="health notifications">
    <div class="title"><h1>Notifications</h1>
      ${error ? html`<span class="line bad"><span aria-hidden="true">✕</span> cut off: ${error.message}</span>` : html`<span class="faint">updated every ${EVERY_MS / 1000} s</span>`}
      ${groups.notifier && html`<span class="faint">sent by ${line(groups.notifier)}</span>`}</div>
    <p role="status" class="report">${report}</p>
    <${Summary} groups=${groups} />
    <div class="cards">
      <${Groups} groups=${groups} onGo=${onGo} ...${acts} />
      <${Silences} silences=${silences} ...${acts} />
    </div>
    ${labels && html`<${SilenceForm} labels=${labels} onDone=${(words) => (setReport(words), again())} onClose=${() => setLabels(null)} />`}
  </main>`;
}

/** Why messages may be missing. */
function Summary({ groups }) {
  if (groups.missing) return null;
  const troubles = [];
  if (!groups.running)
    troubles.push({ about: "No notifier is running", text: "Start one: eventbus worker notify --rules rules.yaml" });
  else if (groups.lag > 1000)
    troubles.push({ about: "The notifier is late", text: `${number(groups.lag)} changes are not looked at yet.` });
  for (const { name, failing } of groups.receivers)
    for (const each of failing)
      troubles.push({
        about: `${line(name)}, ${line(each.name)} fails`,
        text: html`${line(each.error)} <span class="faint">for <${Ago} ms=${each.sinceMs} />, tried again</span>`,
      });
  return troubles.length > 0 && html`<${TroubleList} troubles=${troubles} />`;
}

function Groups({ groups, session, onGo, onSilence, onAct }) {
  const [shown, show] = useState("");
  const items = groups.items ?? [];
  const rows = items.map((group) => ({
    key: group.id,
    cells: [
      html`<${Labels} labels=${group.labels} />`,
      html`<${GroupState} group=${group} />`,
      line(group.receiver),
      html`${number(group.firing)}${group.resolved > 0 ? html` <span class="faint">and ${number(group.resolved)} resolved</span>` : ""}`,
      html`<${Sent} group=${group} />`,
      html`<span class="actions">
        <button type="button" aria-expanded=${shown === group.id ? "true" : "false"} aria-label=${`Show the alerts of ${titleOf(group)}`} onClick=${() => show(shown === group.id ? "" : group.id)}>show</button>
        <${GroupActions} group=${group} session=${session} onSilence=${onSilence} onAct=${onAct} /></span>`,
    ],
    after: shown === group.id && html`<${Alerts} group=${group} onGo=${onGo} />`,
  }));
  const firing = items.filter(({ state }) => state === "firing").length;
  const note = items.length ? `${number(items.length)}${groups.more ? " of more" : ""}, ${number(firing)} firing` : "";
  const empty = !items.length && (groups.running ? "No alert is open." : "No group is stored.");
  return html`<${Card} id="groups" title="Open groups" note=${note} missing=${groups.missing} empty=${empty}>
    <${Table} label="groups" columns=${["Group", "State", "Receiver", "#Alerts", "Last sent", "Actions"]} rows=${rows} /><//>`;
}

const titleOf = ({ labels, receiver }) =>
  `${Object.values(labels).map(line).join(", ") || "all alerts"} to ${line(receiver)}`;

function Labels({ labels }) {
  const pairs = Object.entries(labels);
  if (!pairs.length) return html`<span class="faint">all alerts</span>`;
  return html`<span class="labels">${pairs.map(([name, value]) => html`<span key=${name} class="label"><span class="faint">${line(name)}</span> ${line(value)}</span> `)}</span>`;
}

function GroupState({ group }) {
  const { state, acknowledgedBy, silenced, inhibited } = group;
  if (state === "resolved")
    return html`<${State} good=${true}>resolved<//> <span class="faint">end not sent yet</span>`;
  if (state === "silenced") return html`<${State} good=${null} sign="–">silenced<//>`;
  if (state === "inhibited") return html`<${State} good=${null} sign="–">inhibited<//>`;
  if (state === "muted")
    return html`<${State} good=${null} sign="–">muted<//> <span class="faint">until <${At} ms=${group.nextMs} /></span>`;
  const hidden = [silenced && `${number(silenced)} silenced`, inhibited && `${number(inhibited)} inhibited`].filter(
    Boolean,
  );
  const more = hidden.length > 0 && html` <span class="faint">${hidden.join(", ")}</span>`;
  if (state === "acknowledged")
    return html`<${State} good=${null} sign="–">acknowledged<//> <span class="faint">by ${line(acknowledgedBy) || "an unknown user"}</span>${more}`;
  return html`<${State} good=${false}>firing<//>${more}`;
}

function Sent({ group }) {
  const { state, sentMs, nextMs, pending, failing } = group;
  const sent = sentMs ? html`<${Ago} ms=${sentMs} suffix=" ago" />` : html`<span class="faint">not yet</span>`;
  if (failing.length) return html`${sent} <${State} good=${false}>${failing.map(line).join(", ")} fails<//>`;
  if (pending.length) return html`${sent} <span class="faint">sending …</span>`;
  const isDue = !sentMs && state === "firing" && nextMs > Date.now();
  return html`${sent}${isDue && html`<span class="faint">, due <${At} ms=${nextMs} /></span>`}`;
}

function GroupActions({ group, session, onSilence, onAct }) {
  if (!group.firing || !maySilence(session, group.namespace)) return null;
  const acknowledge = () =>
    onAct(
      call(
        ACKNOWLEDGEMENTS,
        {},
        { method: "POST", body: acknowledgementOf(group.alerts.find(({ resolvedMs }) => !resolvedMs)) },
      ),
      `Acknowledged: ${titleOf(group)}`,
    );
  const labels = { ...(group.namespace && { namespace: group.namespace }), ...group.labels };
  return html`<button type="button" aria-label=${`Silence ${titleOf(group)}`} onClick=${() => onSilence(labels)}>silence</button>
    ${group.state === "firing" && html`<button type="button" aria-label=${`Acknowledge ${titleOf(group)}`} onClick=${acknowledge}>acknowledge</button>`}`;
}

function acknowledgementOf({ kind, namespace, name }) {
  return {
    apiVersion: "eventbus.dev/v1",
    kind: "Acknowledgement",
    metadata: {},
    spec: { object: { kind, namespace, name }, comment: "" },
  };
}

function Alerts({ group, onGo }) {
  const left = group.firing + group.resolved - group.alerts.length;
  const rows = group.alerts.map((alert) => ({
    key: alert.id,
    cells: [
      html`<${ObjectLink} about=${alert} onGo=${onGo} /> <span class="faint">${line(alert.namespace)}</span>`,
      html`${line(alert.reason)}${hiddenWords(alert)}`,
      `×${number(alert.count)}`,
      html`<${Ago} ms=${alert.lastMs} suffix=" ago" />`,
      html`<div class="wrap">${line(alert.message)}</div>`,
    ],
  }));
  return html`<div class="alerts"><h3 class="hidden" id="alerts">Alerts of ${titleOf(group)}</h3>
    <${Table} label="alerts" columns=${["Object", "Reason", "#Times", "Last", "Message"]} rows=${rows} />
    ${left > 0 && html`<p class="faint">and ${number(left)} more</p>`}</div>`;
}

function hiddenWords({ resolvedMs, silencedBy, inhibitedBy }) {
  if (resolvedMs) return html` <${State} good=${true}>resolved<//>`;
  const word = silencedBy.length ? "silenced" : inhibitedBy ? "inhibited" : "";
  return word && html` <span class="faint">${word}</span>`;
}

function Silences({ silences, session, onSilence, onAct }) {
  const [toConfirm, setToConfirm] = useState("");
  const items = (silences.missing ? [] : silences).filter(({ status }) => status.state !== "expired");
  const expire = (id) => {
    if (toConfirm !== id) return setToConfirm(id);
    setToConfirm("");
    onAct(call(`/alertmanager/api/v2/silence/${id}`, {}, { method: "DELETE" }), "The silence has expired.");
  };
  const rows = items.map((silence) => ({
    key: silence.id,
    cells: [
      silence.matchers.map(
        (matcher, at) =>
          html`<div key=${at} class="matcher">${line(matcher.name)}${operatorOf(matcher)}<b>${line(matcher.value)}</b></div>`,
      ),
      silence.status.state === "active"
        ? html`<${State} good=${null} sign="–">active<//> <span class="faint">for <${Left} ms=${parse(silence.endsAt)} /></span>`
        : html`<${State} good=${null}>pending<//> <span class="faint">from <${At} ms=${parse(silence.startsAt)} /></span>`,
      html`<${At} ms=${parse(silence.endsAt)} />`,
      line(silence.createdBy),
      html`<div class="wrap">${line(silence.comment)}</div>`,
      maySilence(session, namespaceOf(silence)) &&
        html`<span class="actions"><button type="button" class="danger" aria-label=${toConfirm === silence.id ? "Expire it now" : `Expire the silence of ${silence.matchers.map(({ value }) => line(value)).join(", ")}`} onClick=${() => expire(silence.id)}>${toConfirm === silence.id ? "now?" : "expire"}</button></span>`,
    ],
  }));
  const add =
    (session.may.silence || session.silenceIn.length > 0) &&
    html`<p><button type="button" onClick=${() => onSilence(session.may.silence ? {} : { namespace: session.silenceIn[0] })}>New silence …</button></p>`;
  return html`<${Card} id="silences" title="Silences" missing=${silences.missing}>${add}
    ${
      rows.length
        ? html`<${Table} label="silences" columns=${["Matchers", "State", "Until", "By", "Comment", "Actions"]} rows=${rows} />`
        : html`<p class="faint">No silence is active or pending.</p>`
    }<//>`;
}

/** The namespace that a silence is restricted to. */
const namespaceOf = ({ matchers }) =>
  matchers.find(({ name, isRegex, isEqual }) => name === "namespace" && isEqual && !isRegex)?.value ?? "";

function Left({ ms }) {
  return useTicking(() => duration((ms - Date.now()) / 1000));
}
