// Package containerd is another baseline: Debian's containerd with runc, asked through the
// CRI as a kubelet asks it, with directories of the benchmark's own.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/bench/account"
	"github.com/bulkhead-project/bulkhead/bench/procs"
	"github.com/bulkhead-project/bulkhead/bench/site"
)

const (
	startPatience = 30 * time.Second
	patience      = time.Minute
	// retry is how often something is asked for that tells nobody by itself.
	retry = 10 * time.Millisecond
)

// ErrAbsent is matched by Open's error when containerd or runc is not installed.
var ErrAbsent = errors.New("containerd with runc is not installed")

// Containerd runs pods through the CRI. Its methods may be called at once.
type Containerd struct {
	// Version is containerd's.
	Version string
	Account *account.Account

	dir, socket string
	cmd         *exec.Cmd
	died        chan error
	conn        *grpc.ClientConn
	cri         runtimeapi.RuntimeServiceClient
	made        []string // directories that were not there
}

// Open starts containerd with everything of its own in dir, which exists, and counts what
// it and its containers use. Pods consist of images that Load loads.
func Open(ctx context.Context, dir string, counted *account.Account) (c *Containerd, err error) {
	for _, program := range []string{"containerd", "ctr", "containerd-shim-runc-v2", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, ErrAbsent
		}
	}
	if counted == nil {
		return nil, errors.New("containerd's pods are put into a cgroup, which there is none for")
	}
	c = &Containerd{Account: counted, dir: dir, socket: filepath.Join(dir, "c.sock"), died: make(chan error, 1)}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config(dir)), 0o600); err != nil {
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
	go func() { c.died <- c.cmd.Wait() }()
	if err := c.reach(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start containerd: %w", err), c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// config is containerd's, of version 1.5 and later. What the benchmark's user may lack is
// not asked for.
func config(dir string) string {
	return strings.NewReplacer("DIR", dir, "PAUSE", pause).Replace(`version = 2
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
bin_dir = "DIR/cni"
conf_dir = "DIR/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "DIR/runc"
`)
}

// reach connects and waits until the CRI is served.
func (c *Containerd) reach(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if c.conn, err = grpc.NewClient("unix://"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	c.cri = runtimeapi.NewRuntimeServiceClient(c.conn)
	for {
		v, err := c.cri.Version(ctx, &runtimeapi.VersionRequest{})
		if err == nil {
			c.Version = v.RuntimeVersion
			return nil
		}
		select {
		case died := <-c.died:
			c.died <- died
			return fmt.Errorf("it ended: %w", errors.Join(died, err))
		case <-time.After(retry):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Load takes an image from an archive and gives it a name.
func (c *Containerd) Load(ctx context.Context, archive, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := site.Time(exec.CommandContext(
		ctx, "ctr", "--address", c.socket, "--namespace", "k8s.io", "images", "import", "--index-name", name, archive,
	), c.Account)
	return err
}

// Close removes all pods, ends containerd, and removes what it keeps outside of its
// directory.
func (c *Containerd) Close(ctx context.Context) (err error) {
	if c.conn != nil {
		err = errors.Join(c.removeAll(ctx), c.conn.Close())
	}
	err = errors.Join(err, c.cmd.Process.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case died := <-c.died:
		err = errors.Join(err, died)
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("containerd does not end: %w", ctx.Err()), c.cmd.Process.Kill())
	}
	for i := range c.made {
		_ = os.Remove(c.made[len(c.made)-1-i]) // others may use it by now
	}
	return err
}

func wait(ctx context.Context) error { return procs.Wait(ctx, retry) }
