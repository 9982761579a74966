# Lists, watches (over the deprecated paths, as it always does), creates, patches and deletes with Debian's kubeclient.
# Prints one line for each.
require 'kubeclient'
require 'timeout'

config = Kubeclient::Config.read(ENV.fetch('KUBECONFIG'))
context = config.context
new_client = lambda do |path, version|
  Kubeclient::Client.new(context.api_endpoint + path, version, ssl_options: context.ssl_options, auth_options: context.auth_options)
end
core = new_client.call('', 'v1')
apps = new_client.call('/apis/apps', 'v1')

def say(what, *values)
  puts "#{what}: #{values.join(' ')}"
end

say 'nodes', core.get_nodes.length
labels = { app: 'rb' }
set = Kubeclient::Resource.new(
  metadata: { name: 'rb', namespace: 'default' },
  spec: {
    selector: { matchLabels: labels },
    template: { metadata: { labels: labels }, spec: { containers: [{ name: 'c', image: 'img:1' }] } }
  }
)
say 'created', apps.create_daemon_set(set).metadata.name
Timeout.timeout(60) do
  watcher = apps.watch_daemon_sets(namespace: 'default')
  watcher.each do |notice|
    if notice.object.metadata.name == 'rb' && notice.object.status.numberAvailable == 2
      say 'rolled out, by', notice.type
      watcher.finish
      break
    end
  end
end
Timeout.timeout(60) do
  watcher = core.watch_pods(namespace: 'default')
  watcher.each do |notice|
    say 'a pod', notice.type, notice.object.kind
    watcher.finish
    break
  end
end
Timeout.timeout(60) do
  watcher = core.watch_nodes(name: 'sim-1')
  watcher.each do |notice|
    say 'one node', notice.type, notice.object.metadata.name
    watcher.finish
    break
  end
end
patched = apps.patch_daemon_set('rb', { metadata: { labels: { patched: 'yes' } } }, 'default')
say 'patched', patched.metadata.labels.patched
pod = core.get_pods(namespace: 'default', label_selector: 'app=rb').first.metadata.name
begin
  core.get_pod_log(pod, 'default')
  say 'logs of a simulated pod', 'came'
rescue Kubeclient::HttpError => e
  say 'logs of a simulated pod', e.error_code
end
apps.delete_daemon_set('rb', 'default')
begin
  apps.get_daemon_set('rb', 'default')
rescue Kubeclient::ResourceNotFoundError => e
  say 'deleted', e.error_code
end
