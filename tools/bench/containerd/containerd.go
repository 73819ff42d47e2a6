// Package containerd is a second baseline: Debian's containerd with runc. The benchmark calls it through the CRI,
// as a kubelet does, in its own directories.
package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/kubelet"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

const (
	endPatience  = 30 * time.Second
	loadPatience = time.Minute
)

// ErrAbsent is matched by Open's error when containerd or runc is not installed.
var ErrAbsent = errors.New("containerd with runc is not installed")

// Options configure containerd.
type Options struct {
	// Dir is an existing directory for all its files.
	Dir string
	// Account counts the processor time of containerd and its containers.
	Account *account.Account
	// CNIConf is the directory of the configuration of the pods' network, and CNIBin the directory of its plugins.
	// If they are empty, pods use the host's network.
	CNIConf, CNIBin string
	// Env are additional variables of containerd and its shims.
	Env []string
}

// Containerd runs pods through the CRI. It is safe for concurrent use.
type Containerd struct {
	*kubelet.Kubelet
	Account *account.Account

	dir, socket string
	cmd         *exec.Cmd
	died        chan struct{}
	err         error    // why it died
	made        []string // directories that did not exist before
}

// Open starts containerd. Pods use the images that Load loads.
func Open(ctx context.Context, o Options) (c *Containerd, err error) {
	dir, counted := o.Dir, o.Account
	for _, program := range []string{"containerd", "ctr", "containerd-shim-runc-v2", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, ErrAbsent
		}
	}
	if counted == nil {
		return nil, errors.New("containerd's pods need a cgroup, but none could be created")
	}
	c = &Containerd{Account: counted, dir: dir, socket: filepath.Join(dir, "c.sock"), died: make(chan struct{})}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config(o)), 0o600); err != nil {
		return nil, fmt.Errorf("configure containerd: %w", err)
	}
	// Shims create their sockets here, whatever the configuration says.
	for _, shims := range []string{"/run/containerd", "/run/containerd/s"} {
		if _, err := os.Stat(shims); err != nil {
			c.made = append(c.made, shims)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	defer log.Close()
	c.cmd = exec.Command("containerd", "--config", filepath.Join(dir, "config.toml"))
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Dir, c.cmd.Env = log, log, "/", append(os.Environ(), o.Env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := counted.Start(c.cmd, (*exec.Cmd).Start); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.died)
	}()
	c.Kubelet, err = kubelet.Dial(ctx, kubelet.Options{
		Socket: c.socket, Logs: dir, Cgroup: counted.Path, HostNetwork: o.CNIConf == "",
	}, c.died)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start containerd: %w", err), c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// config returns a configuration for containerd 1.5 and later. It leaves out features that the benchmark's user may
// lack.
func config(o Options) string {
	return strings.NewReplacer(
		"DIR", o.Dir, "PAUSE", pause, "CNIBIN", cmp.Or(o.CNIBin, o.Dir), "CNICONF", cmp.Or(o.CNIConf, filepath.Join(o.Dir, "cni")),
	).Replace(`version = 2
root = "DIR/root"
state = "DIR/state"
[grpc]
address = "DIR/c.sock"
[ttrpc]
address = "DIR/t.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "DIR/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "PAUSE"
disable_tcp_service = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "CNIBIN"
conf_dir = "CNICONF"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "DIR/runc"
`)
}

// Load loads an image from an archive and names it.
func (c *Containerd) Load(ctx context.Context, archive, name string) error {
	_, err := c.Ctr(ctx, "images", "import", "--index-name", name, archive)
	return err
}

// Ctr runs a command of containerd's client in the CRI's namespace.
func (c *Containerd) Ctr(ctx context.Context, args ...string) (site.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	args = append([]string{"--address", c.socket, "--namespace", "k8s.io"}, args...)
	return site.Time(exec.CommandContext(ctx, "ctr", args...), c.Account)
}

// Close removes all pods, stops containerd, and removes its files outside of its directory.
func (c *Containerd) Close(ctx context.Context) (err error) {
	if c.Kubelet != nil {
		err = c.Kubelet.Close(ctx)
	}
	err = errors.Join(err, c.cmd.Process.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	select {
	case <-c.died:
		err = errors.Join(err, c.err)
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("containerd does not exit: %w", ctx.Err()), c.cmd.Process.Kill())
	}
	for i := range c.made {
		_ = os.Remove(c.made[len(c.made)-1-i]) // it may be in use by others now
	}
	return err
}
