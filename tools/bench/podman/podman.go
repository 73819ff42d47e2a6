// Package podman is the baseline: the same image and commands in podman, in directories of the benchmark.
package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

const patience = time.Minute

// Podman runs containers as the caller, with runc if it is installed.
type Podman struct {
	program string
	env     []string
	cgroup  string // below the top of every hierarchy
	runtime string // an OCI runtime for all containers; empty means the configuration's
	// Version is the version of podman and its runtime.
	Version string
	Account *account.Account
}

// ErrAbsent is matched by Open's error when podman is not installed.
var ErrAbsent = errors.New("podman is not installed")

// Open keeps all of podman's files in dir, which must exist, and counts podman's processor time.
func Open(ctx context.Context, dir string, counted *account.Account) (*Podman, error) {
	program, err := exec.LookPath("podman")
	if err != nil {
		return nil, ErrAbsent
	}
	// Debian's crun does not run with hybrid cgroups, runc always does.
	runtime := "crun"
	if _, err := exec.LookPath("runc"); err == nil {
		runtime = "runc"
	}
	p := &Podman{program: program, Account: counted, cgroup: "/bulkhead-bench-" + filepath.Base(filepath.Dir(dir))}
	if counted != nil {
		p.cgroup = counted.Path
	}
	// static_dir is not set, because it follows graphroot. The process that podman cleans up with knows only
	// graphroot; with another static_dir a run takes 20 s longer.
	files := map[string]string{
		"containers.conf": fmt.Sprintf(`[containers]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
runtime = %q
tmp_dir = %q
volume_path = %q
`, runtime, dir+"/tmp", dir+"/volumes"),
		"storage.conf": fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", dir+"/graph", dir+"/run"),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("configure podman: %w", err)
		}
	}
	p.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir,
		"CONTAINERS_CONF=" + dir + "/containers.conf", "CONTAINERS_STORAGE_CONF=" + dir + "/storage.conf",
	}
	for _, program := range []string{program, runtime} {
		cmd := exec.CommandContext(ctx, program, "--version")
		cmd.Env = p.env
		r, err := site.Time(cmd, p.Account)
		if err != nil {
			return nil, fmt.Errorf("read podman's version: %w", err)
		}
		line, _, _ := strings.Cut(r.Out, "\n")
		p.Version = strings.TrimPrefix(p.Version+" with "+strings.ReplaceAll(line, " version", ""), " with podman ")
	}
	return p, nil
}

// limits are resource limits that no caller needs privileges for. Podman would raise its own, which fails if root
// lacks the capability.
var limits = []string{"--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"}

// With returns a podman with another OCI runtime.
func (p *Podman) With(runtime string) *Podman {
	other := *p
	other.runtime = runtime
	return &other
}

// Run runs `podman args…` until it exits. For `podman run` it adds flags.
func (p *Podman) Run(ctx context.Context, args ...string) (site.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if args[0] == "run" {
		flags := append([]string{"run", "--network", "none", "--cgroup-parent", p.cgroup}, limits...)
		args = append(flags, args[1:]...)
	}
	if p.runtime != "" {
		args = append([]string{"--runtime", p.runtime}, args...)
	}
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Env, cmd.Dir = p.env, "/"
	return site.Time(cmd, p.Account)
}

// Load loads an image from an archive and names it.
func (p *Podman) Load(ctx context.Context, archive, name string) error {
	r, err := p.Run(ctx, "load", "--quiet", "-i", archive)
	if err != nil {
		return err
	}
	id := strings.TrimSpace(r.Out[strings.LastIndex(r.Out, ":")+1:])
	_, err = p.Run(ctx, "tag", id, name)
	return err
}

// Close removes all containers and images of the benchmark, and the cgroups that no account removes.
func (p *Podman) Close(ctx context.Context) error {
	_, rmErr := p.Run(ctx, "rm", "--all", "--force", "--time", "0")
	_, resetErr := p.Run(ctx, "system", "reset", "--force")
	if p.Account == nil {
		resetErr = errors.Join(resetErr, account.Sweep(p.cgroup))
	}
	return errors.Join(rmErr, resetErr)
}
