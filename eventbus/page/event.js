// @ts-check
// What a core/v1 Event says, read once: when, how often, from where.
import { line } from "./text.js";
import { parse } from "./time.js";

/** The row of an event. Everything shown of it is made here, once a change. */
export function rowOf(event) {
  const metadata = event.metadata ?? {},
    about = event.involvedObject ?? {},
    source = event.source ?? {};
  const series = event.series;
  const created = parse(metadata.creationTimestamp);
  const first = firstOf(parse(event.firstTimestamp), parse(event.eventTime), created);
  const last = firstOf(parse(series?.lastObservedTime), parse(event.lastTimestamp), parse(event.eventTime), first);
  const row = {
    key: metadata.uid || `${metadata.namespace}/${metadata.name}`,
    event,
    version: metadata.resourceVersion,
    first,
    last,
    count: series?.count || event.count || 1,
    warning: event.type === "Warning",
    type: line(event.type) || "Normal",
    reason: line(event.reason),
    kind: line(about.kind),
    name: line(about.name),
    namespace: metadata.namespace ?? "",
    about,
    source: line(source.component || event.reportingComponent),
    host: line(source.host || event.reportingInstance),
    message: line(event.message),
    gone: false,
  };
  row.text = textOf(event).toLowerCase();
  return row;
}

// The fields of `has_words` in eventbus/store/event_search.py.
function textOf(event) {
  const { metadata = {}, involvedObject: about = {}, source = {}, related } = event;
  const pairs = [metadata.labels, metadata.annotations].flatMap((map) =>
    Object.entries(map ?? {}).map(([key, value]) => `${key}=${value}`),
  );
  return [
    event.reason,
    event.message,
    event.type,
    event.action,
    metadata.name,
    `${metadata.namespace}/${about.kind}/${about.name}`,
    about.namespace,
    about.uid,
    about.fieldPath,
    about.apiVersion,
    source.component,
    source.host,
    event.reportingComponent,
    event.reportingInstance,
    ...pairs,
    ...(related ? [`${related.kind}/${related.name}`] : []),
  ]
    .filter(Boolean)
    .join("\n");
}

function firstOf(...times) {
  return times.find((time) => !Number.isNaN(time)) ?? 0;
}
