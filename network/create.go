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
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// netUser is the user of the namespace and of pasta when the engine is root.
const netUser = uids.Network

var asNetUser = []string{"setpriv", "--reuid=" + strconv.Itoa(netUser), "--regid=" + strconv.Itoa(netUser), "--clear-groups"}

// gateScript waits for a line on descriptor 3, and then executes its arguments: the process is on record before it
// creates anything. It exits if the engine dies before.
const gateScript = `read -r go <&3 && exec 3<&- || exit
`

// tunScript gives pasta a /dev/net/tun that its user may open. Without udev only root may open the host's node. The
// other node lies in a file system of its own, because the state directory's may forbid devices. It ends with the mount
// namespace.
const tunScript = `setpriv --reuid="$1" --regid="$1" --clear-groups sh -c ': <>/dev/net/tun' 2>/dev/null || {
	mount -t tmpfs -o mode=755,size=16k bulkhead-tun /dev/net &&
	mknod -m 600 /dev/net/tun c 10 200 && chown "$1:$1" /dev/net/tun
} || exit
shift
`

// create creates the user and network namespace, connects them by pasta and closes the host's addresses to them. It
// returns the record, after a failure with the processes that exist then. It calls keep with the record when a process
// is known, so that a later engine finds it.
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

// TryNamespaces creates a user and a network namespace like Attach, and releases them. Its error has the reason in one
// line.
func TryNamespaces(ctx context.Context) error {
	args := inUserNamespace("unshare", "--net", "true")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("create a user and network namespace: %s: %w", lastLine(out), err)
	}
	return nil
}

// inUserNamespace returns a command that runs args in a new user namespace with all capabilities. The network user
// creates the namespace itself, because root could not give it away.
func inUserNamespace(args ...string) []string {
	args = append([]string{"unshare", "--user", "--map-current-user", "--keep-caps"}, args...)
	if userns.HostRoot() {
		args = append(slices.Clone(asNetUser), args...)
	}
	return args
}

// environment returns the whole environment of the namespace's processes: the engine's own may hold secrets, and pasta
// reads packets of guests. BULKHEAD_NETWORK shows in a list of processes which instance they belong to.
func environment(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/usr/bin:/sbin:/bin", "BULKHEAD_NETWORK=" + dir}
}

// pastaArgs returns a command that creates a network namespace in a new user namespace, connects it, and runs the
// holder there.
//
// pasta creates the network namespace itself and gets no path. Some of its AppArmor profiles deny access to other
// processes, and all deny files of Bulkhead. They allow standard streams without a path, and any program.
func pastaArgs() []string {
	args := inUserNamespace("pasta", "--netns-only", "--config-net", "--ipv4-only", "--no-map-gw", "--quiet",
		"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none")
	if len(hostResolver(KindUser).Servers) == 0 {
		// Only then: with the option, pasta makes all answers of the host's first name server come from hostDNS, even
		// if a pod has asked that server itself.
		args = append(args, "--dns-forward", hostDNS)
	}
	return append(args, "--", "/bin/sh", "-c", holdScript)
}

// startPasta starts pasta, which creates the namespace and starts the holder in it. Both outlive this process. While
// this process lives, a killed one stays a zombie until reap collects it. After an error neither is left.
func startPasta(ctx context.Context, dir string, keep func(record) error) (r record, err error) {
	r.OwnUser = !userns.HostRoot()
	var p pipes
	defer p.close()
	ask, answer := p.both(), p.both()
	gate, open := p.create()
	complaints, stderr := p.create()
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
	// The process group is safe to kill: its leader is a child of this process until it is waited for.
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

// awaitHolder waits until the holder runs. pasta starts it when the namespace is connected. If pasta ends instead, its
// child may wait forever, and is killed.
func (r record) awaitHolder(ctx context.Context, complaints *os.File, kill func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = complaints.SetReadDeadline(time.Unix(1, 0)) })()
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel() // runs before ended.Wait
	ended.Go(func() {
		if r.Pasta.Wait(ctx) == nil {
			_ = kill()
		}
	})
	return awaitLine(complaints, there)
}

// lastLine returns pasta's error, which comes after its warnings.
func lastLine(b []byte) string {
	last := "no message"
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "syslog") {
			last = line
		}
	}
	return last
}
