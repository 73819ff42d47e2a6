package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// alice is the number of an ordinary user, who has the numbers of 65536 others from aliceOthers on. She has no rights
// besides, and no cgroup.
const (
	alice       = 2000
	aliceOthers = 300000
)

// TestRootlessPodman plays the life of the containers of an ordinary user's podman.
func TestRootlessPodman(t *testing.T) {
	testturn.SkipUnless(t, 1, 3)
	if testing.Short() {
		t.Skip("boots VMs")
	}
	all := runtimes(t)
	archive := prepare(t)
	user := newUser(t, all)
	for i, r := range all {
		e := &engine{oci: r, client: "podman", system: user.system, flags: []string{"--runtime", r.name}, env: user.environment(), user: alice}
		ctx := testdeadline.Context(t, 2*time.Minute)
		if i == 0 {
			e.do(ctx, t, "load", "--quiet", "--input", archive)
		}
		// The first one starts the engine, which makes a template.
		e.do(ctx, t, "run", "--rm", image, "true")
		t.Run(r.name, func(t *testing.T) { e.play(t, append(some(scenarios, rootlessCommon...), rootlessScenarios...)) })
	}
}

// rootlessCommon are the scenarios of root that an ordinary user's podman passes too.
var rootlessCommon = []string{"run", "read-only", "exit codes", "terminal", "exec", "stop", "files"}

var rootlessScenarios = []scenario{
	{name: "owners", test: rootlessOwners},
	{name: "keep-id", test: rootlessKeepID},
	{name: "outbound", test: rootlessNetwork},
	{name: "published", test: rootlessPorts},
	{name: "pod of two", test: rootlessPod},
	{name: "engine killed", test: podmanEngineKilled},
}

// rootlessUser is alice's session on the host.
type rootlessUser struct{ system }

const aliceHome, aliceRun = "/run/home/alice", "/run/user/2000"

// environment has the directory of settings, because podman looks for them in the working directory otherwise. There root's
// podman leaves a directory of the same name.
func (rootlessUser) environment() []string {
	return append(clientEnv(aliceHome), "XDG_RUNTIME_DIR="+aliceRun, "XDG_CONFIG_HOME="+aliceHome+"/.config")
}

// newUser creates alice, with programs and devices that she may use. Engines of hers end with the test.
func newUser(t *testing.T, all []oci) rootlessUser {
	t.Helper()
	u := rootlessUser{newSystem(t)}
	number := strconv.Itoa(alice)
	appendLine(t, "/etc/passwd", "alice:x:"+number+":"+number+"::"+aliceHome+":/bin/sh")
	appendLine(t, "/etc/group", "alice:x:"+number+":")
	for _, name := range []string{"/etc/subuid", "/etc/subgid"} {
		u.write(t, name, fmt.Sprintf("alice:%d:65536\n", aliceOthers))
	}
	for _, dir := range []string{aliceHome, aliceRun} {
		if err := errors.Join(os.Chown(mkdir(t, dir), alice, alice), os.Chmod(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range all {
		if r.vm { // her programs lie where others may enter
			bindTo(t, mkdir(t, "/run/test/libexec"), filepath.Dir(r.path))
			all[i].path = "/run/test/libexec/bulkhead-oci"
		}
	}
	u.write(t, "/etc/containers/containers.conf", podmanConfig(all))
	const tun = "/run/test/tun"
	if err := unix.Mknod(tun, unix.S_IFCHR, int(unix.Mkdev(10, 200))); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	if err := os.Chmod(tun, 0o666); err != nil { //nolint:gosec // as udev does
		t.Fatal(err)
	}
	bindTo(t, "/dev/net/tun", tun)
	if err := os.Chmod("/dev/shm", 0o777|os.ModeSticky); err != nil { // podman's locks
		t.Fatal(err)
	}
	// Podman warns unless mounts are shared, as systemd makes them.
	u.enter = []string{"unshare", "--mount", "--propagation", "shared", "--", "setpriv",
		"--reuid=" + number, "--regid=" + number, "--clear-groups", "--"}
	t.Cleanup(func() { u.end(t) })
	return u
}

// end ends the user's processes between containers: engines, and podman's own.
func (rootlessUser) end(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), testdeadline.For(20*time.Second))
	defer stop()
	for _, id := range programs(t, "bulkhead-engine") {
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d", id.PID), &st); err != nil || st.Uid != alice {
			continue
		}
		if err := errors.Join(id.Signal(unix.SIGTERM), id.Wait(ctx)); err != nil {
			t.Errorf("end alice's engine: %v", err)
		}
	}
}

func appendLine(t *testing.T, path, line string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(text)+line+"\n")
}

// bindTo mounts a file or a directory at a path, until the test ends.
func bindTo(t *testing.T, at, from string) {
	t.Helper()
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mount %s at %s: %v", from, at, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", at, err)
		}
	})
}

// rootlessOwners: root of the container is alice, and its other users are hers.
func rootlessOwners(ctx context.Context, t *testing.T, e *engine) {
	dir := e.tempDir(t)
	e.expect(ctx, t, 0, "0\n33\n", "run", "--rm", "--volume", dir+":/vol", image, "sh", "-c",
		"touch /vol/root /vol/web; chown 33:33 /vol/web; stat -c %u /vol/root /vol/web")
	e.expect(ctx, t, 0, "33\n", "run", "--rm", "--user", "33", "--volume", dir+":/vol", image, "sh", "-c", "echo x >/vol/web; id -u")
	expectOwners(t, dir, map[string]uint32{"root": alice, "web": aliceOthers + 32})
}

// rootlessKeepID: the user of the container is alice.
func rootlessKeepID(ctx context.Context, t *testing.T, e *engine) {
	dir := e.tempDir(t)
	e.expect(ctx, t, 0, "2000\n2000\n", "run", "--rm", "--userns", "keep-id", "--volume", dir+":/vol", image, "sh", "-c",
		"id -u; touch /vol/own; stat -c %u /vol/own")
	e.expect(ctx, t, 0, "2000\n", "run", "--rm", "--userns", "keep-id", "--user", "0", "--volume", dir+":/vol", image, "sh", "-c",
		"touch /vol/root; stat -c %u /vol/own")
	expectOwners(t, dir, map[string]uint32{"own": alice, "root": aliceOthers})
}

// rootlessNetwork: containers reach other hosts.
func rootlessNetwork(ctx context.Context, t *testing.T, e *engine) {
	e.expect(ctx, t, 0, outsideOf+" hello\n", "run", "--rm", image, "echoserver", "dial", "tcp", outside+":80", "hello")
	e.expect(ctx, t, 0, "lo\n", "run", "--rm", "--network", "none", image, "sh", "-c", "ls /sys/class/net | grep -v eth0")
}

// rootlessPorts: published ports are reached from the host and from other hosts, whichever program carries them.
func rootlessPorts(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "ports", "--publish", "8080:80", "--publish", "8053:53/udp", image, "echoserver", "serve", "tcp:80", "udp:53")
	for _, address := range []string{"127.0.0.1", outsideOf} {
		dialIn(ctx, t, "tcp", address+":8080")
		dialIn(ctx, t, "udp", address+":8053")
	}
	e.do(ctx, t, "restart", "--time", "0", "ports")
	dialIn(ctx, t, "tcp", "127.0.0.1:8080")
	e.start(ctx, t, "slirp", "--network", "slirp4netns:port_handler=slirp4netns", "--publish", "8081:80", image,
		"echoserver", "serve", "tcp:80")
	dialIn(ctx, t, "tcp", "127.0.0.1:8081")
}

// rootlessPod: the containers of a pod share a VM with its loopback and its published ports.
func rootlessPod(ctx context.Context, t *testing.T, e *engine) {
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), testdeadline.For(30*time.Second))
		defer stop()
		e.do(ctx, t, "pod", "rm", "--force", "--time", "0", "--ignore", "p")
	})
	e.do(ctx, t, "pod", "create", "--name", "p", "--publish", "8082:80", "--hostname", "pod-host")
	e.do(ctx, t, "run", "--detach", "--pod", "p", "--name", "p-server", image, "echoserver", "serve", "tcp:80")
	e.do(ctx, t, "run", "--detach", "--pod", "p", "--name", "p-other", image, "sleep", "1000")
	dialIn(ctx, t, "tcp", "127.0.0.1:8082")
	e.expect(ctx, t, 0, "127.0.0.1 hello\n", "exec", "p-other", "echoserver", "dial", "tcp", "127.0.0.1:80", "hello")
	e.expect(ctx, t, 0, "pod-host\n", "exec", "p-other", "hostname")
	if n := vms(t); e.vm && n != 1 {
		t.Errorf("the pod has %d VMs, want 1", n)
	}
	e.remove(ctx, t, "p-server")
	e.remove(ctx, t, "p-other")
}

// expectOwners checks the owners of files on the host.
func expectOwners(t *testing.T, dir string, want map[string]uint32) {
	t.Helper()
	for name, owner := range want {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || st.Uid != owner || st.Gid != owner {
			t.Errorf("%s on the host: %d:%d, %v; want %d", name, st.Uid, st.Gid, err, owner)
		}
	}
}
