package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

// system is a mount namespace with clients: the host's own, or one with the tree of another Debian. The network, processes
// and cgroups are the host's.
type system struct {
	root  string   // its root on the host
	enter []string // the command that runs a command there
}

// newSystem returns the host's own clients. When the test ends, it removes the interfaces and packet filters that they left.
func newSystem(t *testing.T) system {
	t.Helper()
	links := interfaces(t)
	rules, err := exec.Command("iptables-save").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range interfaces(t) {
			if !slices.Contains(links, name) {
				testnet.Run(t, "ip", "link", "del", name)
			}
		}
		restore := exec.Command("iptables-restore")
		restore.Stdin = strings.NewReader(string(rules))
		if out, err := restore.CombinedOutput(); err != nil {
			t.Errorf("restore the packet filter: %v: %s", err, out)
		}
	})
	return system{root: "/"}
}

// interfaces returns the names of the host's interfaces.
func interfaces(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// newTree returns the clients of a Debian suite.
func newTree(t *testing.T, suite string) system {
	t.Helper()
	s := newSystem(t)
	top, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testdeadline.Context(t, 5*time.Minute), filepath.Join(top, "hack", "client-tree"), suite)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the tree of %s (make client-tree makes it): %v", suite, err)
	}
	changes, err := os.MkdirTemp("/run", suite)
	if err != nil {
		t.Fatal(err)
	}
	// A change of the root directory alone would not do: runtimes enter the mount namespaces of containers again, and start
	// at the root of the namespace.
	cmd = exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", `
		cd "$2" && mkdir upper work root
		mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay root && cd root
		mount -t proc proc proc
		for d in run var/lib/cni var/lib/containerd var/lib/containers var/lib/docker; do
			mkdir -p $d && mount -t tmpfs -o mode=0755 tmpfs $d
		done
		shift 2
		for d; do mkdir -p ".$d" && mount --rbind "$d" ".$d"; done
		mkdir host && pivot_root . host && umount -l /host && echo ready && exec sleep infinity`,
		"sh", strings.TrimSpace(string(out)), changes, "/sys", "/dev", "/tmp", mkdir(t, "/run/test"), mkdir(t, "/run/bulkhead"))
	if dir := os.Getenv("BULKHEAD_LIBEXEC"); dir != "" {
		cmd.Args = append(cmd.Args, dir)
	}
	r, w := pipe(t)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = w, os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	id := testproc.Start(t, cmd)
	w.Close()
	newTranscript(r).await(testdeadline.Context(t, 10*time.Second), t, "ready")
	s.root = fmt.Sprintf("/proc/%d/root", id.PID)
	s.enter = []string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", id.PID), "--"}
	s.write(t, "/etc/resolv.conf", "nameserver "+outside+"\n")
	return s
}

// path returns the path of a system's file on the host.
func (s system) path(name string) string { return filepath.Join(s.root, name) }

// write writes a file of the system.
func (s system) write(t *testing.T, name, text string) { t.Helper(); write(t, s.path(name), text) }

// command returns a command of the system.
func (s system) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	all := append(append(slices.Clone(s.enter), program), args...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Dir = "/run"
	return cmd
}

// write writes a file of the host.
func write(t *testing.T, path, text string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// daemon is a running daemon of a system. Its output is in a file of the directory home.
type daemon struct {
	system
	home, program string
	process       *os.Process
	wait          func() error
}

// daemon starts a daemon of the system, which is terminated at the test's end. A failed test shows the end of its log.
func (s system) daemon(t *testing.T, home, program string) *daemon {
	t.Helper()
	d := &daemon{system: s, home: home, program: program}
	d.start(t)
	t.Cleanup(func() {
		_ = d.process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(testdeadline.For(30*time.Second), func() { _ = d.process.Kill() })
		defer late.Stop()
		if err := d.wait(); err != nil {
			t.Errorf("%s: %v", program, err)
		}
		if t.Failed() {
			text, _ := os.ReadFile(d.log())
			t.Logf("%s:\n%s", program, text[max(0, len(text)-4096):])
		}
	})
	return d
}

func (d *daemon) log() string { return filepath.Join(d.home, filepath.Base(d.program)+".log") }

// start starts the daemon. It may have run before.
func (d *daemon) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := d.command(context.Background(), d.program)
	cmd.Env, cmd.Stdout, cmd.Stderr = clientEnv(d.home), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if d.wait, err = testproc.Lasting(cmd); err != nil {
		t.Fatalf("start %s: %v", d.program, err)
	}
	d.process = cmd.Process
}

// kill kills the daemon and waits for its end.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	if err := d.process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.wait() // its error says that it was killed
}
