package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// netUser is who the namespace and pasta run as when the engine is root.
const netUser = uids.Network

var asNetUser = []string{"setpriv", "--reuid=" + strconv.Itoa(netUser), "--regid=" + strconv.Itoa(netUser), "--clear-groups"}

// tunScript gives pasta a /dev/net/tun that it may open, in a mount namespace
// of its own: on a machine without udev the node is root's alone.
const tunScript = `mount --bind "$1" /dev/net/tun && shift && exec "$@"`

// create makes user and network namespace, connects them by pasta, closes the
// host's addresses to them, and returns what stays behind, also where it fails:
// what there is then. keep is given the record whenever a process is known, so
// that an engine that comes after this one finds it.
func create(ctx context.Context, dir string, keep func(record) error) (r record, err error) {
	if _, err := exec.LookPath("pasta"); err != nil {
		return r, fmt.Errorf("%w (install the package passt)", err)
	}
	r.OwnUser = os.Geteuid() != 0
	if r.Holder, err = startHolder(ctx, dir); err != nil {
		return r, err
	}
	if r.PastaDir, err = os.MkdirTemp("", "bulkhead-pasta-"); err != nil {
		return r, err
	}
	if err := keep(r); err != nil {
		return r, err
	}
	if r.Pasta, err = startPasta(ctx, dir, r); err != nil {
		return r, err
	}
	if err := keep(r); err != nil {
		return r, err
	}
	// pasta has brought the namespace's loopback up.
	if err := askHolder(ctx, dir, "link set lo down"); err != nil {
		return r, fmt.Errorf("take the namespace's loopback down: %w", err)
	}
	r.Closed, err = closeAddresses(ctx, dir, nil)
	return r, err
}

// TryNamespaces makes a user and a network namespace as Attach would, and lets
// them go. An error says in one line why they cannot be made.
func TryNamespaces(ctx context.Context) error {
	args := namespaceArgs("true")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a user and network namespace: %s: %w", lastLine(out), err)
	}
	return nil
}

// namespaceArgs runs a command in namespaces of its own. They must be the
// network user's, so that user makes them itself; root could not give them
// away.
func namespaceArgs(args ...string) []string {
	args = append([]string{"unshare", "--user", "--net", "--map-current-user", "--keep-caps"}, args...)
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

// startPasta connects the namespaces of r's holder. pasta forks into the
// background when it is ready, and leaves its pid in a file.
func startPasta(ctx context.Context, dir string, r record) (procid.ID, error) {
	args := []string{
		"pasta", "--config-net", "--ipv4-only", "--no-map-gw", "--quiet", "--pid", r.pidFile(),
		"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none",
	}
	if len(hostResolver(KindUser).Servers) == 0 {
		// Only then: pasta lets all answers of the host's first name server come
		// from hostDNS, also those to who has asked that server itself.
		args = append(args, "--dns-forward", hostDNS)
	}
	args = append(args, strconv.Itoa(r.Holder.PID))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if os.Geteuid() == 0 {
		tun, err := tunNode(dir)
		if err != nil {
			return procid.ID{}, err
		}
		if err := os.Chown(r.PastaDir, netUser, netUser); err != nil {
			return procid.ID{}, err
		}
		cmd = exec.CommandContext(ctx, "/bin/sh", append(append([]string{"-c", tunScript, "sh", tun}, asNetUser...), args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	cmd.Dir, cmd.Env = "/", environment(dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return procid.ID{}, fmt.Errorf("start pasta: %s: %w", lastLine(out), err)
	}
	id, err := r.findPasta()
	if err != nil {
		return procid.ID{}, fmt.Errorf("start pasta: its pid: %w", err)
	}
	return id, nil
}

func (r record) pidFile() string { return filepath.Join(r.PastaDir, "pid") }

// findPasta finds r's pasta by the file that it has left.
func (r record) findPasta() (procid.ID, error) {
	uid := os.Geteuid()
	if uid == 0 {
		uid = netUser
	}
	return readPID(r.pidFile(), uid, strconv.Itoa(r.Holder.PID))
}

// readPID returns the process whose pid a file holds that anything of the
// network's user may have put there: only one that runs as that user and has
// the argument arg is meant.
func readPID(path string, uid int, arg string) (procid.ID, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return procid.ID{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return procid.ID{}, fmt.Errorf("%s is not a file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return procid.ID{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return procid.ID{}, err
	}
	id, err := procid.Of(pid)
	if err != nil {
		return procid.ID{}, err
	}
	if !procid.RunsAs(pid, uid) || !slices.Contains(procid.Args(pid), arg) {
		return procid.ID{}, fmt.Errorf("process %d is another one", pid)
	}
	return id, nil
}

// tunNode makes a tun device node that the network's user can open; the
// directory around it lets nobody else in.
func tunNode(dir string) (string, error) {
	path := filepath.Join(dir, "tun")
	err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 200)))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return "", fmt.Errorf("make a tun device node: %w", err)
	}
	return path, os.Chown(path, netUser, netUser)
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
