// Package containerd is another baseline: Debian's containerd with runc, asked through the
// CRI as a kubelet asks it, with directories of the benchmark's own.
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

	"github.com/bulkhead-project/bulkhead/bench/account"
	"github.com/bulkhead-project/bulkhead/bench/kubelet"
	"github.com/bulkhead-project/bulkhead/bench/site"
)

const (
	endPatience  = 30 * time.Second
	loadPatience = time.Minute
)

// ErrAbsent is matched by Open's error when containerd or runc is not installed.
var ErrAbsent = errors.New("containerd with runc is not installed")

// Options say what containerd is started with.
type Options struct {
	// Dir is an existing directory for everything of its own.
	Dir string
	// Account counts what it and its containers use.
	Account *account.Account
	// CNIConf is the directory of the configuration of the pods' network, CNIBin that of
	// its plugins. Without them pods are on the host's network.
	CNIConf, CNIBin string
}

// Containerd runs pods through the CRI. Its methods may be called at once.
type Containerd struct {
	*kubelet.Kubelet
	Account *account.Account

	dir, socket string
	cmd         *exec.Cmd
	died        chan struct{}
	err         error    // how it has died
	made        []string // directories that were not there
}

// Open starts containerd. Pods consist of images that Load loads.
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
	// Shims have their sockets there, whatever they are told.
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
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Dir = log, log, "/"
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

// config is containerd's, of version 1.5 and later. What the benchmark's user may lack is
// not asked for.
func config(o Options) string {
	return strings.NewReplacer(
		"DIR", o.Dir, "PAUSE", pause, "CNIBIN", cmp.Or(o.CNIBin, o.Dir), "CNICONF", cmp.Or(o.CNIConf, o.Dir),
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

// Load takes an image from an archive and gives it a name.
func (c *Containerd) Load(ctx context.Context, archive, name string) error {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	_, err := site.Time(exec.CommandContext(
		ctx, "ctr", "--address", c.socket, "--namespace", "k8s.io", "images", "import", "--index-name", name, archive,
	), c.Account)
	return err
}

// Close removes all pods, ends containerd, and removes what it keeps outside of its
// directory.
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
		_ = os.Remove(c.made[len(c.made)-1-i]) // others may use it by now
	}
	return err
}
