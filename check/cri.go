package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/network/cni"
)

// CRI is the configuration of `bulkhead cri` or `bulkhead node`.
type CRI struct {
	// Socket, and Kubelet (the kubelet's directory), are empty for `bulkhead node`.
	Socket, Kubelet string
	// CNIConf and CNIBin are for pods in the node's network; CNIConf is empty otherwise.
	CNIConf string
	CNIBin  []string
}

// criProbes returns the additional probes of a node.
func (m *host) criProbes() []Probe {
	probes := []Probe{
		{"root", func(context.Context) Finding { return judgeRoot(os.Geteuid()) }},
		{"pods' cgroups", m.podCgroups},
	}
	if m.options.CRI.Kubelet != "" {
		probes = append(probes, Probe{"kubelet root", func(context.Context) Finding {
			info, err := os.Stat(m.options.CRI.Kubelet)
			return judgeKubelet(m.options.CRI.Kubelet, err, err == nil && info.IsDir())
		}})
	}
	if m.options.CRI.Socket != "" {
		probes = append(probes, Probe{"socket", m.socket})
	}
	if m.options.CRI.CNIConf == "" {
		return probes
	}
	return append(probes, Probe{"CNI", m.plugins}, Probe{"taps", m.taps}, Probe{"tc", m.tc})
}

func judgeRoot(uid int) Finding {
	if uid != 0 {
		return fail(fmt.Sprintf("user %d cannot be a node: only root can create cgroups, network namespaces and users for pods", uid),
			"run it as root: systemctl enable --now bulkhead-cri, or bulkhead-node (deploy/systemd)")
	}
	return ok("each VM gets its own user")
}

// kubepods are the cgroups that kubelets make, by their two drivers.
var kubepods = []string{"/kubepods", "/kubepods.slice"}

func (m *host) podCgroups(context.Context) Finding {
	h := hostcgroup.Find("bulkhead-check-" + strconv.Itoa(os.Getpid()))
	defer h.Tidy()
	for _, parent := range kubepods {
		if _, err := h.Below(parent, 0); err == nil {
			return judgePodCgroups(h.Support(), parent)
		}
	}
	return judgePodCgroups(h.Support(), "")
}

// judgePodCgroups judges the cgroups of pods. parent is the kubelet's cgroup, if it exists already.
func judgePodCgroups(s hostcgroup.Support, parent string) Finding {
	var lacking []string
	for _, c := range []string{"memory", "cpu"} {
		if !s.Has(c) {
			lacking = append(lacking, c)
		}
	}
	switch {
	case len(lacking) > 0:
		without := strings.Join(lacking, " and ")
		return fail(fmt.Sprintf("no cgroups with %s for pods: the kubelet's limits would not hold (%s)", without, s.Missing),
			"run it as root, with cgroup2 or these controllers mounted on /sys/fs/cgroup (not cgroup_disable=memory)")
	case parent == "":
		return ok("pods' cgroups go below the kubelet's, which do not exist yet")
	}
	return ok(fmt.Sprintf("pods' cgroups go below the kubelet's, %s", parent))
}

func judgeKubelet(dir string, err error, directory bool) Finding {
	const remedy = "give bulkhead cri the kubelet's --root-dir: kubelet-root in /etc/bulkhead/config.toml"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn(dir+" does not exist yet: the kubelet creates it, or uses another one", remedy)
	case err != nil:
		return fail(err.Error(), remedy)
	case !directory:
		return fail(dir+" is not a directory", remedy)
	}
	return ok("volumes of pods are recognised below " + dir)
}

// endpoint is the state of the socket's path.
type endpoint struct {
	path   string
	served bool
	other  bool  // not a socket
	err    error // the directory is not writable
}

func (m *host) socket(ctx context.Context) Finding {
	e := endpoint{path: m.options.CRI.Socket}
	if info, err := os.Lstat(e.path); err == nil {
		e.other = info.Mode().Type() != fs.ModeSocket
	}
	if c, err := (&net.Dialer{}).DialContext(ctx, "unix", e.path); err == nil {
		e.served = c.Close() == nil
	}
	e.err = unix.Access(existing(filepath.Dir(e.path)), unix.W_OK)
	return judgeSocket(e)
}

// longestSocket is the kernel's limit, without the byte that ends a path.
const longestSocket = 107

func judgeSocket(e endpoint) Finding {
	const another = "choose another path: listen in /etc/bulkhead/config.toml"
	switch {
	case len(e.path) > longestSocket:
		return fail(fmt.Sprintf("%s has %d characters, and a socket's path may have %d", e.path, len(e.path), longestSocket), another)
	case e.served:
		return ok("served: " + e.path)
	case e.other:
		return fail(e.path+" is not a socket", "remove it, or "+another)
	case e.err != nil:
		return fail(fmt.Sprintf("%s cannot be created: %v", e.path, e.err), "run it as root, or "+another)
	}
	return ok("not served yet: " + e.path)
}

func (m *host) plugins(ctx context.Context) Finding {
	c := m.options.CRI
	// This asks the plugins the same questions as a kubelet's status request.
	p := cni.New(cni.Options{Conf: c.CNIConf, Bin: c.CNIBin, Dir: filepath.Join(m.options.Roots.Data, "cni", "check")})
	defer p.Close()
	return judgePlugins(c, p.Status(ctx))
}

func judgePlugins(c *CRI, err error) Finding {
	bin := strings.Join(c.CNIBin, " or ")
	if err != nil {
		return fail(err.Error(), fmt.Sprintf("install a network plugin: its configuration into %s, its programs into %s; or set network to user",
			c.CNIConf, bin))
	}
	return ok(fmt.Sprintf("the plugins of %s, in %s, can attach pods", c.CNIConf, bin))
}

func (m *host) taps(context.Context) Finding {
	taps, redirection := cni.Try()
	m.redirection = redirection
	if taps != nil {
		m.redirection = errUntried
	}
	return judgeTaps(taps)
}

var errUntried = errors.New("not tried without a card")

func judgeTaps(err error) Finding {
	if err != nil {
		return fail(err.Error(), "run it as root; modprobe tun, and create /dev/net/tun")
	}
	return ok("a VM's network card can be created in a network namespace")
}

func (m *host) tc(context.Context) Finding { return judgeTC(m.redirection) }

func judgeTC(err error) Finding {
	switch {
	case errors.Is(err, errUntried):
		return warn(err.Error(), "")
	case err != nil:
		return fail(err.Error(), "modprobe sch_ingress cls_u32 act_mirred (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED)")
	}
	return ok("packets can be redirected between a card and the plugins' interface (u32, mirred)")
}
