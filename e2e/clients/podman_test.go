package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestPodman plays the life of podman's containers.
func TestPodman(t *testing.T) {
	testturn.SkipUnless(t, 0, 3)
	if testing.Short() {
		t.Skip("boots VMs")
	}
	prepare(t)
	startEngine(t)
	playPodman(t, newSystem(t))
}

// playPodman plays the life of the containers of a system's podman.
func playPodman(t *testing.T, s system) {
	all := runtimes(t)
	home := t.TempDir()
	reachable(t, home) // podman puts the roots of user namespaces below TMPDIR
	s.write(t, "/etc/subuid", "containers:200000:100000\n")
	s.write(t, "/etc/subgid", "containers:200000:100000\n")
	s.write(t, "/etc/containers/containers.conf", podmanConfig(all))
	for i, r := range all {
		e := &engine{oci: r, client: "podman", system: s, flags: []string{"--runtime", r.name}, env: clientEnv(home)}
		if i == 0 {
			ctx := testdeadline.Context(t, time.Minute)
			e.do(ctx, t, "load", "--quiet", "--input", prepare(t))
			e.do(ctx, t, "run", "--rm", "--publish", "80:80", image, "true") // creates the bridge and its rules
		}
		t.Run(r.name, func(t *testing.T) { e.play(t, append(scenarios, podmanScenarios...)) })
	}
}

// podmanConfig is podman's configuration with these runtimes.
func podmanConfig(all []oci) string {
	names := []string{}
	table := ""
	for _, r := range all {
		names = append(names, fmt.Sprintf("%q", r.name))
		table += fmt.Sprintf("%s = [%q]\n", r.name, r.path)
	}
	return `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
infra_image = "` + infra + `"
runtime_supports_json = [` + strings.Join(names, ", ") + `]
[engine.runtimes]
` + table + "[network]\nfirewall_driver = \"iptables\"\n"
}

var podmanScenarios = []scenario{
	{name: "pod of three", test: podmanPod},
	{name: "healthcheck", test: podmanHealth},
	{name: "kube play", test: podmanKube},
	{name: "users", test: podmanUsers},
	{name: "monitor killed", test: podmanMonitorKilled},
	{name: "engine killed", test: podmanEngineKilled},
}

// podmanEngineKilled: a container outlives the engine. Podman removes it with an empty environment, and that starts another
// engine. A tree has no QEMU, so the host starts it there.
func podmanEngineKilled(ctx context.Context, t *testing.T, e *engine) {
	if !e.vm {
		t.Skip("it has no engine")
	}
	e.start(ctx, t, "survivor", image, "sleep", "1000")
	for _, engine := range programs(t, "bulkhead-engine") {
		if err := errors.Join(engine.Signal(unix.SIGKILL), engine.Wait(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	e.expect(ctx, t, 0, "on\n", "exec", "survivor", "echo", "on")
	if e.root != "/" {
		startEngine(t)
	}
	e.do(ctx, t, "rm", "--force", "--time", "0", "survivor")
}

// podmanMonitorKilled: the container runs on without its conmon. Podman 4.3 removes it without its runtime. Podman 5.4 removes
// it with its runtime, but only the second time.
func podmanMonitorKilled(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "orphan", image, "sleep", "1000")
	pid, err := strconv.Atoi(e.inspect(ctx, t, "orphan", ".State.ConmonPid"))
	if err != nil {
		t.Fatal(err)
	}
	conmon, err := procid.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := conmon.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.expect(ctx, t, 0, "on\n", "exec", "orphan", "echo", "on")
	id := e.inspect(ctx, t, "orphan", ".Id")
	if e.root != "/" {
		if o := e.try(ctx, t, "", "rm", "--force", "--time", "0", "orphan"); o.code != 125 || !strings.Contains(o.stderr, "conmon exited") {
			t.Errorf("the first removal: %+v", o)
		}
	}
	e.do(ctx, t, "rm", "--force", "--time", "0", "orphan")
	list := e.system.command(ctx, e.oci.path, "list", "--quiet")
	if o := runClient(ctx, t, list, ""); o.code != 0 || strings.Contains(o.out, id) != (e.root == "/") {
		t.Errorf("after podman's removal of %s: %+v", id, o)
	}
	if o := runClient(ctx, t, e.system.command(ctx, e.oci.path, "delete", "--force", id), ""); o.code != 0 {
		t.Errorf("delete: %+v", o)
	}
}

// podmanPod: the containers of a pod share the loopback and the host name.
func podmanPod(ctx context.Context, t *testing.T, e *engine) {
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), testdeadline.For(30*time.Second))
		defer stop()
		e.do(ctx, t, "pod", "rm", "--force", "--time", "0", "--ignore", "p")
	})
	e.do(ctx, t, "pod", "create", "--name", "p", "--publish", "8081:80",
		"--hostname", "pod-host")
	e.do(ctx, t, "run", "--detach", "--pod", "p", "--name", "p-server", image, "echoserver", "serve", "tcp:80")
	e.do(ctx, t, "run", "--detach", "--pod", "p", "--name", "p-other", image, "sleep", "1000")
	until(ctx, t, "the server's log", func() bool { return e.do(ctx, t, "logs", "p-server") == "serving" })
	e.expect(ctx, t, 0, "127.0.0.1 hello\n", "exec", "p-other", "echoserver", "dial", "tcp", "127.0.0.1:80", "hello")
	e.expect(ctx, t, 0, "pod-host\n", "exec", "p-other", "hostname")
	dialOut(ctx, t, "tcp", outsideOf+":8081", outside)
	if e.vm {
		if n := vms(t); n != 1 {
			t.Errorf("the pod has %d VMs, want 1", n)
		}
	}
	e.do(ctx, t, "pod", "stop", "--time", "0", "p")
	e.do(ctx, t, "pod", "start", "p")
	until(ctx, t, "the server's log after a restart", func() bool { return strings.Count(e.do(ctx, t, "logs", "p-server"), "serving") == 2 })
	e.expect(ctx, t, 0, "127.0.0.1 again\n", "exec", "p-other", "echoserver", "dial", "tcp", "127.0.0.1:80", "again")
}

// podmanHealth: a health check is an exec, and its exit code decides.
func podmanHealth(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "health", "--health-cmd", "test -e /healthy", "--health-interval", "disable", "--health-retries", "1",
		image, "sleep", "1000")
	if o := e.try(ctx, t, "", "healthcheck", "run", "health"); o.code != 1 {
		t.Errorf("health check of an ill container: %+v", o)
	}
	if got := e.inspect(ctx, t, "health", ".State.Health.Status"); got != "unhealthy" {
		t.Errorf("health: %s", got)
	}
	e.do(ctx, t, "exec", "health", "touch", "/healthy")
	e.do(ctx, t, "healthcheck", "run", "health")
	if got := e.inspect(ctx, t, "health", ".State.Health.Status"); got != "healthy" {
		t.Errorf("health: %s", got)
	}
}

// podmanUsers: in a user namespace the host sees other owners. cp, exec and published ports work there.
//
// Podman 4.3 runs conmon in a mount namespace of its own then, and conmon's cleanup unmounts /dev/shm only there. Its rm
// fails if that came first, with runc too.
func podmanUsers(ctx context.Context, t *testing.T, e *engine) {
	if e.root == "/" {
		t.Skip("podman 4.3 cannot always remove containers with --uidmap; the podman of Debian 13 is tested")
	}
	dir := t.TempDir()
	reachable(t, dir)
	write(t, filepath.Join(dir, "in"), "from the host\n")
	vol := filepath.Join(dir, "vol")
	if err := errors.Join(os.Mkdir(vol, 0o700), os.Chown(vol, firstUser, firstUser)); err != nil {
		t.Fatal(err)
	}
	e.start(ctx, t, "users", "--uidmap", fmt.Sprintf("0:%d:65536", firstUser), "--volume", vol+":/vol", "--publish", "8082:80", image,
		"sh", "-c", "id -u; touch /vol/x /vol/web; chown 33 /vol/web; exec echoserver serve tcp:80")
	until(ctx, t, "the server's log", func() bool { return e.do(ctx, t, "logs", "users") == "0\nserving" })
	dialOut(ctx, t, "tcp", outsideOf+":8082", outside)
	e.do(ctx, t, "exec", "--user", "1000", "users", "touch", "/tmp/demo")
	e.do(ctx, t, "cp", filepath.Join(dir, "in"), "users:/copied")
	e.do(ctx, t, "cp", "users:/tmp/demo", filepath.Join(dir, "out"))
	e.expect(ctx, t, 0, "0 from the host\n1000\n", "exec", "users", "sh", "-c",
		"echo $(stat -c %u /copied; cat /copied); stat -c %u /tmp/demo")
	for name, want := range map[string]uint32{"x": firstUser, "web": firstUser + 33} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(vol, name), &st); err != nil || st.Uid != want || st.Gid != firstUser {
			t.Errorf("%s on the host: %d:%d, %v; want %d", name, st.Uid, st.Gid, err, want)
		}
	}
	// Podman binds /sys into a user namespace without a network of its own.
	e.expect(ctx, t, 0, "sysfs\n", "run", "--rm", "--network", "container:users", "--userns", "container:users", image,
		"awk", "$2 == \"/sys\" { print $3 }", "/proc/mounts")
	e.expect(ctx, t, 0, "0 0\n", "run", "--rm", "--network", "none", "--userns", "auto:size=2000", image, "stat", "-c", "%u %g", "/bin")
}

// podmanKube: a manifest of Kubernetes runs.
func podmanKube(ctx context.Context, t *testing.T, e *engine) {
	manifest := filepath.Join(t.TempDir(), "pod.yaml")
	write(t, manifest, strings.ReplaceAll(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube"},
		"spec": {"restartPolicy": "Never", "containers": [
			{"name": "one", "image": "IMAGE", "imagePullPolicy": "Never", "command": ["echoserver", "serve", "tcp:80"],
				"env": [{"name": "A", "value": "b"}]},
			{"name": "two", "image": "IMAGE", "imagePullPolicy": "Never", "command": ["sleep", "1000"]}]}}`, "IMAGE", image))
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), testdeadline.For(30*time.Second))
		defer stop()
		e.do(ctx, t, "pod", "rm", "--force", "--time", "0", "--ignore", "kube")
		e.do(ctx, t, "network", "rm", "podman-default-kube-network")
	})
	e.do(ctx, t, "kube", "play", manifest)
	until(ctx, t, "the server's log", func() bool { return e.do(ctx, t, "logs", "kube-one") == "serving" })
	e.expect(ctx, t, 0, "127.0.0.1 hello\n", "exec", "kube-two", "echoserver", "dial", "tcp", "127.0.0.1:80", "hello")
	e.expect(ctx, t, 0, "b\n", "exec", "kube-one", "sh", "-c", "echo $A")
}
