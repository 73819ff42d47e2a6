package clients

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var lifeCases = []contractCase{
	{"create, start and delete", createStartDelete},
	{"an id is used once", idTwice},
	{"delete", deletes},
	{"a killed process ends its container", killedProcess},
	{"states are apart by root", twoRoots},
	{"relative bundle", relativeBundle},
	{"absolute root", absoluteRoot},
	{"versions", versions},
	{"cgroup", cgroup},
	{"namespaces", namespaces},
	{"the process has the root", processRoot},
	{"run", runForeground},
	{"run detached", runDetached},
	{"flags of clients", clientFlags},
}

// createStartDelete: the process of the pid file exists from create on, and its exit status is the container's.
func createStartDelete(ctx context.Context, t *testing.T, c *contract) {
	spec := script("echo out; echo err >&2; exit 7")
	spec.Annotations = map[string]string{"org.example.key": "a value"}
	bundle := writeBundle(t, spec)
	k := c.create(ctx, t, "c", bundle)
	s := c.state(ctx, t, "c")
	if s.Created.IsZero() || s.Version == "" {
		t.Errorf("state: created %v, ociVersion %q", s.Created, s.Version)
	}
	want := state{Rootfs: filepath.Join(bundle, "rootfs"), Created: s.Created, State: specs.State{
		Version: s.Version, ID: "c", Status: specs.StateCreated, Pid: k.pid, Bundle: bundle, Annotations: spec.Annotations,
	}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("state after create (-want +got):\n%s", diff)
	}
	if got := k.stdout.text() + k.stderr.text(); got != "" {
		t.Errorf("before start, the streams carry %q", got)
	}
	c.do(ctx, t, "start", "c")
	k.expectExit(ctx, t, 7)
	if out, errs := k.stdout.all(ctx, t), k.stderr.all(ctx, t); out != "out\n" || errs != "err\n" {
		t.Errorf("standard output %q, standard error %q", out, errs)
	}
	// Between the end and delete, buildah and CRI-O wait for this status.
	want.Status, want.Pid = specs.StateStopped, 0
	if diff := cmp.Diff(want, c.state(ctx, t, "c")); diff != "" {
		t.Errorf("state after the end (-want +got):\n%s", diff)
	}
	c.do(ctx, t, "delete", "c")
	c.fails(ctx, t, 1, "container does not exist", "state", "c")
	if held := mountsOf(t, bundle); len(held) > 0 {
		t.Errorf("after delete, the root is mounted: %q", held)
	}
}

// mountsOf returns the mounts below a directory in all mount namespaces. Clients unmount and mount the root again.
func mountsOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
			t.Fatal(err) // other errors come from processes that end
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, dir) {
				found = append(found, file+": "+line)
			}
		}
	}
	return found
}

// idTwice: the second create of an id fails and leaves the first container alone. After delete the id is free.
func idTwice(ctx context.Context, t *testing.T, c *contract) {
	bundle := writeBundle(t, script("exit 3"))
	k := c.create(ctx, t, "c", bundle)
	c.fails(ctx, t, 1, "container with given ID already exists", "create", "--bundle", writeBundle(t, script("exit 4")), "c")
	c.do(ctx, t, "start", "c")
	k.expectExit(ctx, t, 3)
	c.do(ctx, t, "delete", "c")
	k = c.create(ctx, t, "c", bundle)
	c.do(ctx, t, "start", "c")
	k.expectExit(ctx, t, 3)
}

// deletes: delete of a running container fails, with --force it kills. --force also succeeds for an unknown id.
func deletes(ctx context.Context, t *testing.T, c *contract) {
	c.do(ctx, t, "delete", "--force", "unknown")
	c.fails(ctx, t, 1, "container does not exist", "delete", "unknown")
	k := c.start(ctx, t, "c", newSpec("sleep", "1000"))
	c.fails(ctx, t, 1, "cannot delete container c that is not stopped: running", "delete", "c")
	c.do(ctx, t, "delete", "--force", "c")
	k.expectSignal(ctx, t, unix.SIGKILL)
	c.fails(ctx, t, 1, "container does not exist", "delete", "c")
	created := c.create(ctx, t, "created", writeBundle(t, newSpec("sleep", "1000")))
	c.do(ctx, t, "delete", "created")
	created.expectSignal(ctx, t, unix.SIGKILL)
}

// killedProcess: conmon and dockerd kill the process of the pid file to end a container.
func killedProcess(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script("echo started; sleep 1000"))
	k.stdout.await(ctx, t, "started")
	if err := unix.Kill(k.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k.expectSignal(ctx, t, unix.SIGKILL)
	c.awaitStatus(ctx, t, "c", specs.StateStopped)
	c.do(ctx, t, "delete", "c")
}

// twoRoots: the same id may exist below two roots.
func twoRoots(ctx context.Context, t *testing.T, c *contract) {
	other := newContract(t, c.oci)
	one := c.create(ctx, t, "c", writeBundle(t, script("exit 1")))
	two := other.create(ctx, t, "c", writeBundle(t, script("exit 2")))
	c.do(ctx, t, "start", "c")
	one.expectExit(ctx, t, 1)
	if s := other.state(ctx, t, "c"); s.Status != specs.StateCreated {
		t.Errorf("the other container is %s", s.Status)
	}
	other.do(ctx, t, "start", "c")
	two.expectExit(ctx, t, 2)
}

// relativeBundle: the state has the bundle's absolute path.
func relativeBundle(ctx context.Context, t *testing.T, c *contract) {
	bundle := writeBundle(t, newSpec("true"))
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(wd, bundle)
	if err != nil {
		t.Fatal(err)
	}
	k := c.create(ctx, t, "c", relative)
	if got := c.state(ctx, t, "c").Bundle; got != bundle {
		t.Errorf("bundle %q, want %q", got, bundle)
	}
	c.do(ctx, t, "start", "c")
	k.expectExit(ctx, t, 0)
}

// absoluteRoot: podman and docker give an absolute path, which is often a mounted overlay. Programs write there, and
// clients read.
func absoluteRoot(ctx context.Context, t *testing.T, c *contract) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil { // an overlay cannot have its layers in another one
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	newRoot(t, filepath.Join(dir, "lower"))
	merged := filepath.Join(dir, "merged")
	options := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(merged, unix.MNT_DETACH) })
	spec := script("cat /given && echo guest >/made && rm /etc/text && chown 33:44 /made; sleep 1000")
	spec.Root.Path = merged
	bundle := t.TempDir()
	writeConfig(t, bundle, spec)
	k := c.create(ctx, t, "c", bundle)
	if err := os.WriteFile(filepath.Join(merged, "given"), []byte("host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.do(ctx, t, "start", "c")
	k.stdout.await(ctx, t, "host\n")
	made := filepath.Join(dir, "upper", "made")
	var info unix.Stat_t
	until(ctx, t, "the container's file on the host", func() bool { return unix.Stat(made, &info) == nil && info.Uid == 33 && info.Gid == 44 })
	if text, err := os.ReadFile(made); err != nil || string(text) != "guest\n" {
		t.Errorf("%s: %q, %v", made, text, err)
	}
	if _, err := os.Stat(filepath.Join(merged, "etc/text")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the removed file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(merged, "later"), []byte("copied\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.exec(ctx, t, "c", "cat /later"); got != "copied\n" {
		t.Errorf("a file that was copied into the running container: %q", got)
	}
	c.do(ctx, t, "delete", "--force", "c")
	if err := unix.Unmount(merged, 0); err != nil {
		t.Errorf("unmount the root after delete: %v", err)
	}
}

// versions: newer minor versions of the specification are accepted.
func versions(ctx context.Context, t *testing.T, c *contract) {
	for i, version := range []string{"1.0.0", "1.1.0+dev", "1.3.0", "1.99.1"} {
		spec := script("exit 5")
		spec.Version = version
		k := c.start(ctx, t, "c"+strconv.Itoa(i), spec)
		k.expectExit(ctx, t, 5)
	}
}

// cgroup: the process of the pid file is in the group of the specification, where podman and docker read statistics.
// delete removes the group.
func cgroup(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("sleep", "1000")
	name := fmt.Sprintf("/contract-%s-%d/c", c.name, os.Getpid())
	spec.Linux.CgroupsPath = name
	k := c.start(ctx, t, "c", spec)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", k.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		// A runtime may use a group below it, and a hierarchy without controllers may have no group.
		path := strings.SplitN(strings.TrimSpace(line), ":", 3)[2]
		if path != name && !strings.HasPrefix(path, name+"/") && !strings.HasPrefix(line, "0:") {
			t.Errorf("the process is in %s, want %s", strings.TrimSpace(line), name)
		}
	}
	c.do(ctx, t, "delete", "--force", "c")
	left, err := filepath.Glob("/sys/fs/cgroup/*" + name)
	if err != nil || len(left) > 0 {
		t.Errorf("delete left the groups %q, %v", left, err)
	}
}

// namespaces: the process of the pid file has the namespaces that the specification asks for. podman gives these to the
// members of a pod, and top enters the pid namespace.
func namespaces(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", newSpec("sleep", "1000"))
	for _, kind := range []string{"pid_for_children", "ipc", "uts", "mnt", "net"} {
		if ns := namespace(t, k.pid, kind); ns == namespace(t, os.Getpid(), kind) {
			t.Errorf("the process shares the host's namespace %s", kind)
		}
	}
	if ns := namespace(t, k.pid, "user"); ns != namespace(t, os.Getpid(), "user") {
		t.Error("the process has a user namespace, which was not asked for")
	}
}

// namespace returns the identity of a process's namespace.
func namespace(t *testing.T, pid int, kind string) string {
	t.Helper()
	id, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// processRoot: podman cp on a running container goes by way of the process's root.
func processRoot(ctx context.Context, t *testing.T, c *contract) {
	spec := script("echo from the container >/made; echo started; sleep 1000")
	volume := t.TempDir()
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/volume", Type: "bind", Source: volume, Options: []string{"rbind", "rw"}})
	k := c.start(ctx, t, "c", spec)
	k.stdout.await(ctx, t, "started")
	root := fmt.Sprintf("/proc/%d/root", k.pid)
	if text, err := os.ReadFile(root + "/made"); err != nil || string(text) != "from the container\n" {
		t.Errorf("a file of the container: %q, %v", text, err)
	}
	for _, name := range []string{"/given", "/volume/given"} {
		if err := os.WriteFile(root+name, []byte("from the host\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.exec(ctx, t, "c", "cat "+name); got != "from the host\n" {
			t.Errorf("%s of the host: %q", name, got)
		}
	}
	if _, err := os.Stat(filepath.Join(volume, "given")); err != nil {
		t.Error(err)
	}
}

// runForeground: run passes streams, returns the exit code, and deletes the container.
func runForeground(ctx context.Context, t *testing.T, c *contract) {
	bundle := writeBundle(t, script("cat; echo err >&2; exit 9"))
	pidFile := filepath.Join(c.dir, "pid")
	r := c.runInput(ctx, t, "input\n", "run", "--bundle", bundle, "--pid-file", pidFile, "c")
	if r.code != 9 || r.stdout != "input\n" || r.stderr != "err\n" {
		t.Errorf("run: %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	if _, err := os.Stat(pidFile); err != nil {
		t.Error(err)
	}
	c.fails(ctx, t, 1, "container does not exist", "state", "c")
}

// runDetached: run --detach is create and start.
func runDetached(ctx context.Context, t *testing.T, c *contract) {
	bundle := writeBundle(t, script("trap 'exit 6' TERM; echo started; while :; do sleep 0.01; done"))
	pidFile := filepath.Join(c.dir, "pid")
	args := c.args(filepath.Join(c.dir, "log"), "run", "--detach", "-b", bundle, "--pid-file", pidFile, "c")
	k, code := startMonitored(ctx, t, pidFile, nil, args...)
	if code != 0 {
		t.Fatalf("run: exit code %d: %s", code, k.stderr.text())
	}
	k.stdout.await(ctx, t, "started")
	if s := c.state(ctx, t, "c"); s.Status != specs.StateRunning || s.Pid != k.pid {
		t.Errorf("state: %+v, want the process %d", s, k.pid)
	}
	c.do(ctx, t, "kill", "c")
	k.expectExit(ctx, t, 6)
	c.do(ctx, t, "delete", "c")
}

// clientFlags: global flags and flags of create that clients use in special cases are accepted.
func clientFlags(ctx context.Context, t *testing.T, c *contract) {
	k := c.create(ctx, t, "c", writeBundle(t, script("exit 2")), "--no-new-keyring", "--no-pivot=false", "--preserve-fds=0")
	log := filepath.Join(c.dir, "log")
	args := []string{"--debug", "--root=" + c.root, "--log=" + log, "--log-format=text", "--rootless=auto", "--criu=criu"}
	plain := &contract{oci: c.oci, root: c.root, dir: c.dir}
	plain.do(ctx, t, append(args, "start", "c")...)
	k.expectExit(ctx, t, 2)
	if r := plain.run(ctx, t, append(args, "start", "c")...); r.code != 1 {
		t.Errorf("start after the end: %+v", r)
	}
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), `level=error msg="cannot start a container`) {
		t.Errorf("the log in text: %q, %v", text, err)
	}
}
