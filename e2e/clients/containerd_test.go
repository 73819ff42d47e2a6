package clients

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testhost/leftover"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestContainerd plays the life of containerd's containers with ctr. Its shim for runc calls the runtime.
func TestContainerd(t *testing.T) {
	testturn.SkipUnless(t, 2, 3)
	if testing.Short() {
		t.Skip("boots VMs")
	}
	prepare(t)
	playContainerd(t, newSystem(t))
}

// playContainerd plays the life of the containers of a system's containerd.
func playContainerd(t *testing.T, s system) {
	all := withFront(runtimes(t))
	home := t.TempDir()
	s.write(t, "/etc/containerd/config.toml", "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n")
	conf := "/etc/cni/net.d"
	if err := os.RemoveAll(s.path(conf)); err != nil {
		t.Fatal(err)
	}
	s.write(t, filepath.Join(conf, "10-bridge.conflist"), `{"cniVersion": "0.4.0", "name": "bridge", "plugins": [{"type": "bridge",
		"bridge": "ctr0", "isGateway": true, "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}],
		"ranges": [[{"subnet": "10.99.0.0/24"}]]}}]}`)
	if err := os.Symlink(testnet.Plugins, filepath.Join(mkdir(t, s.path("/opt/cni")), "bin")); err != nil {
		t.Fatal(err)
	}
	s.daemon(t, home, "/usr/bin/containerd")
	for i, r := range all {
		c := ctr{&engine{oci: r, client: "ctr", system: s, env: clientEnv(home)}, []string{"--runc-binary", r.path}}
		if r.name == front {
			c.flags = []string{"--runtime", r.path}
		}
		if i == 0 {
			ctx := testdeadline.Context(t, time.Minute)
			until(ctx, t, "containerd answers", func() bool { return c.try(ctx, t, "", "version").code == 0 })
			c.do(ctx, t, "images", "import", prepare(t))
			c.do(ctx, t, "run", "--rm", "--cni", image, "first", "true")
		}
		t.Run(r.name, func(t *testing.T) {
			before := leftover.Take(t, stateDirs...)
			for _, s := range ctrScenarios {
				t.Run(s.name, func(t *testing.T) { s.test(testdeadline.Context(t, time.Minute), t, c) })
			}
			before.ExpectNothingNew(testdeadline.Context(t, 20*time.Second), t, stateDirs...)
			for _, list := range []string{"tasks ls -q", "containers ls -q"} {
				if got := c.do(testdeadline.Context(t, 20*time.Second), t, strings.Fields(list)...); got != "" {
					t.Errorf("%s: %s", list, got)
				}
			}
		})
	}
}

// front is containerd's shim for containers in VMs.
const front = "containerd-shim-bulkhead-v2"

// withFront adds the shim to runtimes if bulkhead-oci is one of them.
func withFront(all []oci) []oci {
	if own := all[len(all)-1]; own.vm {
		all = append(all, oci{name: front, path: filepath.Join(filepath.Dir(own.path), front), vm: true})
	}
	return all
}

// ctr is containerd's client with one runtime.
type ctr struct {
	*engine
	flags []string // of run
}

var ctrScenarios = []struct {
	name string
	test func(ctx context.Context, t *testing.T, c ctr)
}{
	{"run", ctrRuns},
	{"failures", ctrFailures},
	{"terminal", ctrTerminal},
	{"life", ctrLife},
	{"exec", ctrExecs},
	{"network", ctrNetwork},
	{"volumes", ctrVolumes},
	{"limits", ctrLimits},
	{"logs", ctrLogs},
}

// args returns the arguments of run.
func (c ctr) args(more ...string) []string { return slices.Concat([]string{"run"}, c.flags, more) }

// start starts a container in the background, which is removed at the test's end.
func (c ctr) start(ctx context.Context, t *testing.T, id string, args ...string) {
	t.Helper()
	c.removeAtEnd(ctx, t, id)
	c.do(ctx, t, c.args(append([]string{"--detach"}, args...)...)...)
}

func (c ctr) removeAtEnd(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), testdeadline.For(30*time.Second))
		defer stop()
		c.try(ctx, t, "", "tasks", "delete", "--force", id)
		if o := c.try(ctx, t, "", "containers", "delete", id); o.code != 0 && !strings.Contains(o.stderr, "not found") {
			t.Errorf("remove %s: %+v", id, o)
		}
	})
}

// task returns the pid and the status of a task.
func (c ctr) task(ctx context.Context, t *testing.T, id string) (pid int, status string) {
	t.Helper()
	for line := range strings.Lines(c.do(ctx, t, "tasks", "ls")) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n, f[2]
		}
	}
	return 0, "absent"
}

// ctrRuns: run passes streams and the exit code. Programs write into the snapshot.
func ctrRuns(ctx context.Context, t *testing.T, c ctr) {
	o := c.try(ctx, t, "input\n", c.args("--rm", "--env", "A=b c", "--cwd", "/tmp", image, "run",
		"sh", "-c", "read l; echo $l; echo $A; pwd; id -u; echo err >&2; echo x >/tmp/x && cat /tmp/x; exit 7")...)
	if want := "input\nb c\n/tmp\n0\nx\n"; o.code != 7 || o.out != want || !strings.HasPrefix(o.stderr, "err\n") {
		t.Errorf("run: %+v, want 7, %q", o, want)
	}
	o = c.try(ctx, t, "", c.args("--rm", "--read-only", image, "run", "touch", "/x")...)
	if o.code != 1 || !strings.Contains(o.stderr, "Read-only file system") {
		t.Errorf("run with a read-only root: %+v", o)
	}
}

// ctrFailures: containerd shows the runtime's error.
func ctrFailures(ctx context.Context, t *testing.T, c ctr) {
	for program, want := range map[string]string{
		"absent": `exec: "absent": executable file not found in $PATH`, "/etc/passwd": `exec: "/etc/passwd": permission denied`,
	} {
		if o := c.try(ctx, t, "", c.args("--rm", image, "failing", program)...); o.code != 1 || !strings.Contains(o.stderr, want) {
			t.Errorf("run %s: %+v, want %q", program, o, want)
		}
	}
	if _, status := c.task(ctx, t, "failing"); status != "absent" {
		t.Errorf("the failed task: %s", status)
	}
}

func ctrTerminal(ctx context.Context, t *testing.T, c ctr) {
	screen := testpty.New(t, 30, 90)
	before := screen.Modes()
	run := c.command(ctx, c.args("--rm", "--tty", "--env", "TERM=dumb", image, "terminal", "sh")...)
	c.removeAtEnd(ctx, t, "terminal")
	screen.Start(run)
	screen.Expect("# ")
	screen.Type("until test \"$(stty size)\" = '30 90'; do :; done; tty; echo $((6*7))\n") // ctr sets the size afterwards
	screen.Expect("/dev/pts/0\r+\n42\r+\n")                                                // ctr lets the terminal add carriage returns
	screen.Resize(20, 50)
	screen.Type("until test \"$(stty size)\" = '20 50'; do :; done; echo re''sized\n")
	screen.Expect("resized\r+\n")
	screen.Type("exit 6\n")
	screen.CheckExit(run, 6, before)
}

// ctrLife: one task from its start to its removal, with all that clients ask between.
func ctrLife(ctx context.Context, t *testing.T, c ctr) {
	file := filepath.Join(t.TempDir(), "pid")
	c.start(ctx, t, "life", "--pid-file", file, image, "life", "sh", "-c", "trap 'exit 9' TERM; touch /ready; while :; do sleep 0.02; done")
	pid, status := c.task(ctx, t, "life")
	if text, err := os.ReadFile(file); err != nil || string(text) != strconv.Itoa(pid) || status != "RUNNING" {
		t.Errorf("the task's pid %d, in the file %q, status %s, %v", pid, text, status, err)
	}
	if got := c.do(ctx, t, "tasks", "ps", "life"); !slices.Contains(strings.Fields(got), strconv.Itoa(pid)) {
		t.Errorf("ps: %q lacks %d", got, pid)
	}
	if got := c.do(ctx, t, "tasks", "metrics", "life"); !strings.Contains(got, "memory") || !strings.Contains(got, "cpu") {
		t.Errorf("metrics: %q", got)
	}
	c.do(ctx, t, "tasks", "pause", "life")
	if _, status := c.task(ctx, t, "life"); status != "PAUSED" {
		t.Errorf("status after pause: %s", status)
	}
	c.do(ctx, t, "tasks", "resume", "life")
	until(ctx, t, "the program handles signals", func() bool {
		return c.try(ctx, t, "", "tasks", "exec", "--exec-id", "look", "life", "test", "-e", "/ready").code == 0
	})
	c.do(ctx, t, "tasks", "kill", "--signal", "SIGTERM", "life")
	until(ctx, t, "the end", func() bool { _, status := c.task(ctx, t, "life"); return status == "STOPPED" })
	if o := c.try(ctx, t, "", "tasks", "delete", "life"); o.code != 0 || !strings.Contains(o.stderr, "non-zero exit code 9") {
		t.Errorf("delete shows the exit code: %+v", o)
	}
	// A second task of the same container finds its files.
	c.do(ctx, t, "tasks", "start", "--detach", "life")
	c.do(ctx, t, "tasks", "kill", "--signal", "SIGKILL", "life")
	until(ctx, t, "the second end", func() bool { _, status := c.task(ctx, t, "life"); return status == "STOPPED" })
	if o := c.try(ctx, t, "", "tasks", "delete", "life"); o.code != 0 || !strings.Contains(o.stderr, "non-zero exit code 137") {
		t.Errorf("delete of the killed task: %+v", o)
	}
	c.do(ctx, t, "containers", "delete", "life")
	if got := c.do(ctx, t, "snapshots", "ls"); strings.Contains(got, "life") {
		t.Errorf("snapshots: %s", got)
	}
}

func ctrExecs(ctx context.Context, t *testing.T, c ctr) {
	c.start(ctx, t, "exec", "--env", "OF=container", image, "exec", "sleep", "1000")
	o := c.try(ctx, t, "input\n", "tasks", "exec", "--exec-id", "one", "--cwd", "/tmp", "--user", "1000", "exec",
		"sh", "-c", "read l; echo $l; id -u; pwd; echo $OF; echo err >&2; exit 11")
	if want := "input\n1000\n/tmp\ncontainer\n"; o.code != 11 || o.out != want || !strings.HasPrefix(o.stderr, "err\n") {
		t.Errorf("exec: %+v, want 11, %q", o, want)
	}
	o = c.try(ctx, t, "", "tasks", "exec", "--exec-id", "two", "exec", "absent")
	if o.code != 1 || !strings.Contains(o.stderr, "executable file not found") {
		t.Errorf("exec of an absent program: %+v", o)
	}
	c.do(ctx, t, "tasks", "exec", "--exec-id", "three", "--detach", "exec", "sh", "-c", "echo detached >/detached; sleep 1000")
	until(ctx, t, "the detached exec's file", func() bool {
		return c.try(ctx, t, "", "tasks", "exec", "--exec-id", "four", "exec", "cat", "/detached").out == "detached\n"
	})
	c.do(ctx, t, "tasks", "kill", "--exec-id", "three", "--signal", "SIGKILL", "exec")
	if _, status := c.task(ctx, t, "exec"); status != "RUNNING" {
		t.Errorf("after the kill of an exec: %s", status)
	}
}

// ctrNetwork: CNI configures the namespace of the task's process between create and start. Other tasks join it by path.
func ctrNetwork(ctx context.Context, t *testing.T, c ctr) {
	// ctr keeps the address of a task that it does not wait for, with runc too.
	t.Cleanup(func() {
		if err := os.RemoveAll(c.system.path("/var/lib/cni/networks/bridge")); err != nil {
			t.Error(err)
		}
	})
	c.start(ctx, t, "server", "--cni", image, "server", "echoserver", "serve", "tcp:80", "udp:81")
	address := ""
	until(ctx, t, "the address", func() bool {
		got := c.do(ctx, t, "tasks", "exec", "--exec-id", "look", "server", "ip", "-o", "-4", "addr", "show", "dev", "eth0")
		_, address, _ = strings.Cut(got, "inet ")
		address, _, _ = strings.Cut(address, "/")
		return address != ""
	})
	dialIn(ctx, t, "tcp", address+":80")
	dialIn(ctx, t, "udp", address+":81")
	pid, _ := c.task(ctx, t, "server")
	o := c.try(ctx, t, "", c.args("--rm", "--with-ns", "network:/proc/"+strconv.Itoa(pid)+"/ns/net", image, "joined",
		"echoserver", "dial", "tcp", "127.0.0.1:80", "hello")...)
	if o.code != 0 || o.out != "127.0.0.1 hello\n" {
		t.Errorf("from the joined container: %+v", o)
	}
	o = c.try(ctx, t, "", c.args("--rm", "--net-host", image, "host", "echoserver", "dial", "tcp", address+":80", "hello")...)
	if o.code != 0 || !strings.HasSuffix(o.out, " hello\n") {
		t.Errorf("from the host's network: %+v", o)
	}
}

func ctrVolumes(ctx context.Context, t *testing.T, c ctr) {
	dir := t.TempDir()
	write(t, dir+"/given", "from the host\n")
	o := c.try(ctx, t, "", c.args("--rm", "--mount", "type=bind,src="+dir+",dst=/v,options=rbind:rw",
		"--mount", "type=bind,src="+dir+",dst=/ro,options=rbind:ro", image, "volumes",
		"sh", "-c", "cat /v/given; echo made >/v/made; touch /ro/x")...)
	if o.code != 1 || o.out != "from the host\n" || !strings.Contains(o.stderr, "Read-only file system") {
		t.Errorf("volumes: %+v", o)
	}
	if text, err := os.ReadFile(dir + "/made"); err != nil || string(text) != "made\n" {
		t.Errorf("the container's file: %q, %v", text, err)
	}
}

func ctrLimits(ctx context.Context, t *testing.T, c ctr) {
	o := c.try(ctx, t, "", c.args("--rm", "--memory-limit", strconv.Itoa(32*mib), image, "eater", "sh", "-c", eater)...)
	if o.code != 137 {
		t.Errorf("a program that takes too much memory: %+v", o)
	}
}

// ctrLogs: the output goes to a file. The shim of containerd 1.6 loses the standard error.
func ctrLogs(ctx context.Context, t *testing.T, c ctr) {
	file := filepath.Join(t.TempDir(), "log")
	c.start(ctx, t, "logs", "--log-uri", "file://"+file, image, "logs", "sh", "-c", "echo out")
	until(ctx, t, "the line", func() bool {
		text, _ := os.ReadFile(file)
		return string(text) == "out\n"
	})
}
