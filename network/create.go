package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// netUser is who the namespace and pasta run as when the engine is root.
const netUser = uids.Network

var asNetUser = []string{"setpriv", "--reuid=" + strconv.Itoa(netUser), "--regid=" + strconv.Itoa(netUser), "--clear-groups"}

// gateScript waits until descriptor 3 says so, and then becomes its arguments: the
// process is on record before it makes anything. It ends with an engine that dies
// before.
const gateScript = `read -r go <&3 && exec 3<&- || exit
`

// tunScript gives pasta a /dev/net/tun that its user may open. Without udev the host's
// node is root's alone. The other node lies in a file system of its own, because the
// state directory's may forbid devices, and ends with the mount namespace.
const tunScript = `setpriv --reuid="$1" --regid="$1" --clear-groups sh -c ': <>/dev/net/tun' 2>/dev/null || {
	mount -t tmpfs -o mode=755,size=16k bulkhead-tun /dev/net &&
	mknod -m 600 /dev/net/tun c 10 200 && chown "$1:$1" /dev/net/tun
} || exit
shift
`

// create makes user and network namespace, connects them by pasta, closes the
// host's addresses to them, and returns what stays behind, also where it fails:
// what there is then. keep is given the record whenever a process is known, so
// that an engine that comes after this one finds it.
func create(ctx context.Context, dir string, keep func(record) error) (r record, err error) {
	if _, err := exec.LookPath("pasta"); err != nil {
		return r, fmt.Errorf("%w (install the package passt)", err)
	}
	if r, err = startPasta(ctx, dir, keep); err != nil {
		return r, fmt.Errorf("start pasta: %w", err)
	}
	if err := keep(r); err != nil {
		return r, err
	}
	// pasta has brought the namespace's loopback up.
	if err := askHolder(ctx, r.Holder, "link set lo down"); err != nil {
		return r, fmt.Errorf("bring the namespace's loopback down: %w", err)
	}
	r.Closed, err = closeAddresses(ctx, r.Holder, nil)
	return r, err
}

// TryNamespaces makes a user and a network namespace as Attach would, and lets
// them go. An error says in one line why they cannot be made.
func TryNamespaces(ctx context.Context) error {
	args := inUserNamespace("unshare", "--net", "true")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("create a user and network namespace: %s: %w", lastLine(out), err)
	}
	return nil
}

// inUserNamespace runs a command in a user namespace of its own, with all capabilities
// there. It must be the network user's, so that user makes it itself; root could not
// give it away.
func inUserNamespace(args ...string) []string {
	args = append([]string{"unshare", "--user", "--map-current-user", "--keep-caps"}, args...)
	if os.Geteuid() == 0 {
		args = append(slices.Clone(asNetUser), args...)
	}
	return args
}

// environment is all that the namespace's processes have of it: the engine's own
// may hold secrets, and pasta reads what guests send. It says whose they are to who
// looks at the machine's processes.
func environment(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/usr/bin:/sbin:/bin", "BULKHEAD_NETWORK=" + dir}
}

// pastaArgs makes a network namespace in a user namespace of its own, connects it, and
// runs the holder there.
//
// pasta makes the network namespace itself and is given no path, for some of
// AppArmor's profiles of it forbid to look at other processes, and all to open files
// of ours. The profiles allow standard streams without a path, and any program.
func pastaArgs() []string {
	args := inUserNamespace("pasta", "--netns-only", "--config-net", "--ipv4-only", "--no-map-gw", "--quiet",
		"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none")
	if len(hostResolver(KindUser).Servers) == 0 {
		// Only then: pasta lets all answers of the host's first name server come
		// from hostDNS, also those to who has asked that server itself.
		args = append(args, "--dns-forward", hostDNS)
	}
	return append(args, "--", "/bin/sh", "-c", holdScript)
}

// startPasta starts pasta, which makes the namespace, and in it the holder. Both
// outlive this process, and are not waited for: while this process lives, one that is
// killed stays a zombie until reap collects it. An error leaves neither.
func startPasta(ctx context.Context, dir string, keep func(record) error) (r record, err error) {
	r.OwnUser = os.Geteuid() != 0
	var p pipes
	defer p.close()
	ask, answer := p.both(), p.both()
	gate, open := p.make()
	complaints, stderr := p.make()
	if p.err != nil {
		return r, p.err
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", gateScript + `exec "$@"`, "sh"}, pastaArgs()...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !r.OwnUser {
		cmd.Args = append([]string{"/bin/sh", "-c", gateScript + tunScript + `exec "$@"`, "sh", strconv.Itoa(netUser)}, pastaArgs()...)
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.Dir, cmd.Env = "/", environment(dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = ask, answer, stderr, []*os.File{gate}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	// Its group is no other's: it is our child until it is waited for.
	kill := func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	defer func() {
		if err != nil {
			err = errors.Join(err, kill())
		}
		err = errors.Join(err, cmd.Process.Release())
	}()
	if err := errors.Join(stderr.Close(), gate.Close()); err != nil {
		return r, err
	}
	if r.Pasta, err = procid.Of(cmd.Process.Pid); err != nil {
		return r, err
	}
	if err := keep(r); err != nil {
		return r, err
	}
	if _, err := open.WriteString("go\n"); err != nil {
		return r, err
	}
	if err := r.awaitHolder(ctx, complaints, kill); err != nil {
		return r, err
	}
	r.Holder, err = r.findHolder()
	return r, err
}

// findHolder finds pasta's only child.
func (r record) findHolder() (procid.ID, error) {
	children, err := r.Pasta.Children()
	if err == nil && len(children) != 1 {
		err = fmt.Errorf("pasta has %d children, want the holder", len(children))
	}
	if err != nil {
		return procid.ID{}, err
	}
	return children[0], nil
}

// awaitHolder waits until the holder runs. pasta starts it when the namespace is
// connected. When pasta ends instead, its child may wait for ever, and is killed.
func (r record) awaitHolder(ctx context.Context, complaints *os.File, kill func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = complaints.SetReadDeadline(time.Unix(1, 0)) })()
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel() // before it is waited for
	ended.Go(func() {
		if r.Pasta.Wait(ctx) == nil {
			_ = kill()
		}
	})
	return said(complaints, there)
}

// lastLine is where pasta says why; before it come its warnings.
func lastLine(b []byte) string {
	last := "no message"
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "syslog") {
			last = line
		}
	}
	return last
}
