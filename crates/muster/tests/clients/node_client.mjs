// Lists, watches, creates, patches, applies, asks for logs and exec, and deletes with @kubernetes/client-node. Prints one line for each.
import http2 from 'node:http2';
import { createRequire } from 'node:module';
import { Writable } from 'node:stream';

const k8s = createRequire(`${process.env.CLIENT_NODE}/`)('@kubernetes/client-node');
const config = new k8s.KubeConfig();
config.loadFromFile(process.env.KUBECONFIG);
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const say = (what, ...values) => console.log(`${what}:`, ...values);
const namespace = 'default';

say('nodes', (await core.listNode()).items.length);
const template = { metadata: { labels: { app: 'js' } }, spec: { containers: [{ name: 'c', image: 'img:1' }] } };
const set = { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name: 'js' }, spec: { selector: { matchLabels: { app: 'js' } }, template } };
const created = await apps.createNamespacedDaemonSet({ namespace, body: set });
say('created', created.metadata.name, created.metadata.generation);

await new Promise((done, failed) => {
  const watching = new k8s.Watch(config).watch(
    '/apis/apps/v1/namespaces/default/daemonsets',
    { fieldSelector: 'metadata.name=js' },
    async (type, it) => {
      if (it.status?.numberAvailable === 2) {
        say('rolled out, by', type);
        (await watching).abort();
        done();
      }
    },
    (error) => error && error.name !== 'AbortError' && failed(error),
  );
});

// A HEAD over HTTP/2: the library refuses an answer that has a body.
await new Promise((done, failed) => {
  const { certData, keyData } = config.getCurrentUser();
  const { server, caData } = config.getCurrentCluster();
  const read = (data) => Buffer.from(data, 'base64');
  const session = http2.connect(server, { ca: read(caData), cert: read(certData), key: read(keyData) });
  session.on('error', failed);
  const request = session.request({ ':method': 'HEAD', ':path': '/version' });
  request.on('error', failed);
  let bytes = 0;
  request.on('response', (headers) => say('HEAD', headers[':status'], headers['content-type'], 0 < Number(headers['content-length'])));
  request.on('data', (chunk) => (bytes += chunk.length));
  request.on('end', () => {
    say('bytes of its body', bytes);
    session.close();
    done();
  });
  request.end();
});

const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const patch = { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name: 'js', namespace, labels: { patched: 'yes' } } };
const patched = await objects.patch(patch, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch);
say('patched', patched.metadata.labels.patched);
const apply = async (manager, force) => {
  const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'js', namespace }, data: { a: manager } };
  try {
    const applied = await objects.patch(map, undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
    say(manager, 'applied', applied.data.a);
  } catch (error) {
    say(manager, error.code);
  }
};
await apply('one');
await apply('two');
await apply('two', true);

const pod = (await core.listNamespacedPod({ namespace, labelSelector: 'app=js' })).items[0].metadata.name;
const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
try {
  await new k8s.Log(config).log(namespace, pod, 'c', nowhere, { follow: false });
  say('logs of a simulated pod', 'came');
} catch (error) {
  say('logs of a simulated pod', error.code ?? error.statusCode ?? error.message);
}
try {
  await new k8s.Exec(config).exec(namespace, pod, 'c', ['true'], nowhere, nowhere, null, false);
  say('exec in a simulated pod', 'ran');
} catch (error) {
  say('exec in a simulated pod', error.message);
}
await core.deleteNamespacedConfigMap({ namespace, name: 'js' });
const deleted = await apps.deleteNamespacedDaemonSet({ namespace, name: 'js' });
say('deleted', deleted.status);
process.exit(0);
