package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bulkhead-project/bulkhead/network"
)

// userns reports whether user namespaces work, and the settings that may forbid them.
type userns struct {
	err      error
	clone    string // kernel.unprivileged_userns_clone, empty if missing
	apparmor string // kernel.apparmor_restrict_unprivileged_userns, likewise
	most     string // user.max_user_namespaces
	tools    []string
}

// networkTools are the programs for the network, and their packages.
var networkTools = []struct{ program, from string }{
	{"unshare", "util-linux"}, {"nsenter", "util-linux"}, {"setpriv", "util-linux"}, {"ip", "iproute2"},
}

func (m *host) namespaces(ctx context.Context) Finding {
	var u userns
	for _, t := range networkTools {
		if _, err := exec.LookPath(t.program); err != nil {
			u.tools = append(u.tools, t.from)
		}
	}
	u.err = network.TryNamespaces(ctx)
	u.clone = sysctl("kernel/unprivileged_userns_clone")
	u.apparmor = sysctl("kernel/apparmor_restrict_unprivileged_userns")
	u.most = sysctl("user/max_user_namespaces")
	return m.needed(judgeNamespaces(u))
}

// needed records the remedy for a missing part of the network.
func (m *host) needed(f Finding) Finding {
	if f.Status != OK {
		m.networkRemedies = append(m.networkRemedies, f.Remedy)
	}
	return f
}

func sysctl(name string) string {
	b, _ := os.ReadFile(filepath.Join("/proc/sys", name)) // not every kernel has it
	return strings.TrimSpace(string(b))
}

func judgeNamespaces(u userns) Finding {
	switch {
	case len(u.tools) > 0:
		return warn("programs to set them up with are missing", "apt-get install "+strings.Join(u.tools, " "))
	case u.err == nil:
		return ok("an unprivileged process can make a user and a network namespace")
	}
	reason := u.err.Error()
	switch {
	case u.most == "0":
		return warn(reason, "allow them: sysctl -w user.max_user_namespaces=10000")
	case u.clone == "0":
		return warn(reason, "allow them: sysctl -w kernel.unprivileged_userns_clone=1")
	case u.apparmor == "1":
		return warn(reason, "allow them: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
	}
	return warn(reason, "if this is a container, start it with a seccomp profile that allows unshare and mount")
}

func (m *host) pasta(ctx context.Context) Finding {
	path, err := exec.LookPath("pasta")
	version := ""
	if err == nil {
		// Some versions print to stderr and fail: any first line will do.
		out, _ := exec.CommandContext(ctx, path, "--version").CombinedOutput()
		version, _, _ = strings.Cut(string(out), "\n")
	}
	return m.needed(judgePasta(path, version, err))
}

func judgePasta(path, version string, err error) Finding {
	if err != nil {
		return warn("pasta, which connects pods to external networks, is missing", "apt-get install passt")
	}
	version = strings.TrimPrefix(version, "pasta ")
	if version == "" || version == "unknown version" { // as built by Debian
		return ok(path)
	}
	return ok(version + ", " + path)
}

func (m *host) tun(context.Context) Finding {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	return m.needed(judgeTun(err, os.Geteuid() == 0))
}

func judgeTun(err error, root bool) Finding {
	switch {
	case err == nil && root:
		return ok("there; pasta gets a node of its own")
	case err == nil:
		return ok("can be opened")
	case errors.Is(err, os.ErrPermission):
		return warn("it cannot be opened by this user", "chmod 0666 /dev/net/tun (as udev makes it)")
	}
	return warn(fmt.Sprintf("%v", err), "modprobe tun")
}

// userNetwork is the network that pods would get.
type userNetwork struct {
	kind     network.Kind
	reason   string
	err      error // the test failed
	remedies []string
}

func (m *host) network(ctx context.Context) Finding {
	n := userNetwork{remedies: m.networkRemedies}
	if !m.stateOK {
		n.err = errors.New("there is no directory to keep its record in")
		return judgeNetwork(n)
	}
	dir, leave, err := m.room()
	if err != nil {
		n.err = err
		return judgeNetwork(n)
	}
	defer leave()
	u := network.NewUser(ctx, dir, false)
	n.kind, n.reason = u.Kind()
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	n.err = u.Release(endCtx)
	return judgeNetwork(n)
}

func judgeNetwork(n userNetwork) Finding {
	switch {
	case n.err != nil:
		return warn(fmt.Sprintf("not tried: %v", n.err), "")
	case n.kind == network.KindUser:
		return ok("pods reach external networks and DNS, but not the host; published ports work")
	}
	remedies := append(append([]string{}, n.remedies...), "or bulkhead run --allow-host-loopback, which opens the host's loopback to the pod")
	return warn("restricted: "+n.reason+"; published ports work", strings.Join(remedies, "; "))
}
