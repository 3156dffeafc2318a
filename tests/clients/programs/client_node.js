// @kubernetes/client-node: an informer that is started again where it ends with an error, and writes as a recorder does.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [url, modules] = process.argv.slice(2);
const found = createRequire(pathToFileURL(modules + '/package.json')).resolve('@kubernetes/client-node');
const k8s = await import(pathToFileURL(found));
const tell = (told) => console.log(JSON.stringify(told));

const config = new k8s.KubeConfig();
config.loadFromClusterAndUser({ name: 'bus', server: url, skipTLSVerify: true }, { name: 'nobody' });
const api = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'default';
const list = () => api.listNamespacedEvent({ namespace });

const first = await list();
tell({ listed: first.items.map((event) => event.metadata.name) });
const name = 'by-client-node';
const involvedObject = { apiVersion: 'v1', kind: 'Pod', namespace, name: 'web-0' };
const body = { metadata: { name, namespace }, involvedObject, reason: 'Written', type: 'Normal', count: 1 };
await api.createNamespacedEvent({ namespace, body });
const patched = await api.patchNamespacedEvent({ name, namespace, body: [{ op: 'replace', path: '/count', value: 2 }] });
tell({ wrote: patched.metadata.name, count: patched.count });

const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/events`, list);
const begin = () => informer.start().catch(() => setTimeout(begin, 100));
informer.on('add', (event) => tell({ type: 'ADDED', name: event.metadata.name }));
informer.on('update', (event) => tell({ type: 'MODIFIED', name: event.metadata.name }));
informer.on('delete', (event) => tell({ type: 'DELETED', name: event.metadata.name }));
informer.on('error', (error) => {
  tell({ cut: String(error) });
  setTimeout(begin, 100);
});
await begin();
