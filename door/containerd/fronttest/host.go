// Package fronttest has a Runtime for tests of the front without virtual machines: its containers are processes of the host
// in their root directories.
package fronttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Host is the Runtime. Another process can remove its containers, which are recorded in Dir.
type Host struct {
	// Dir has a file for each container.
	Dir string

	mu         sync.Mutex
	containers map[string]*container
}

var _ containerd.Runtime = (*Host)(nil)

type container struct {
	*process
	root string
}

// process is a process of the host. go is closed by Start.
type process struct {
	cmd    *exec.Cmd
	start  *os.File
	exited chan struct{}
	exit   containerd.Exit
	oom    bool
}

// The scripts wait for a line on descriptor 3. Without one, because the front has died, they end as if they were killed.
const (
	runScript  = `read -r _ <&3 || exit 137; exec 3<&-; exec /usr/sbin/chroot "$@"`
	waitScript = `read -r _ <&3 || exit 137; read -r _ <&3; exit 137`
)

// Create implements containerd.Runtime. A process that is named /oom is killed as if the guest had no memory left.
func (h *Host) Create(ctx context.Context, c containerd.CreateOptions) (containerd.Process, error) {
	b, err := os.ReadFile(filepath.Join(c.Bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return nil, err
	}
	if spec.Process == nil || len(spec.Process.Args) == 0 || spec.Root == nil {
		return nil, fmt.Errorf("%w: config.json", containerd.ErrInvalid)
	}
	root := spec.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(c.Bundle, root)
	}
	script, args := runScript, append([]string{root}, spec.Process.Args...)
	if spec.Annotations["io.kubernetes.cri.container-type"] == "sandbox" {
		script, args = waitScript, nil
	} else if err := lookUp(root, spec.Process); err != nil {
		return nil, err
	}
	p, err := launch(script, args, spec.Process.Env, c.Streams)
	if err != nil {
		return nil, err
	}
	p.oom = spec.Process.Args[0] == "/oom"
	if err := h.record(c.ID, p.cmd.Process.Pid); err != nil {
		p.kill()
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.containers == nil {
		h.containers = map[string]*container{}
	}
	h.containers[c.ID] = &container{process: p, root: root}
	return p, ctx.Err()
}

// lookUp returns runc's error for a program that does not exist.
func lookUp(root string, p *specs.Process) error {
	name := p.Args[0]
	for _, dir := range []string{"", "/bin", "/usr/bin", "/sbin", "/usr/sbin"} {
		if strings.Contains(name, "/") == (dir == "") {
			if _, err := os.Lstat(filepath.Join(root, dir, name)); err == nil || name == "/oom" {
				return nil
			}
		}
	}
	return fmt.Errorf("exec failed: unable to start container process: exec: %q: executable file not found in $PATH", name)
}

func launch(script string, args, env []string, streams containerd.Streams) (*process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Env = env
	if streams.Stdin != nil {
		cmd.Stdin = streams.Stdin
	}
	if streams.Stdout != nil {
		cmd.Stdout = streams.Stdout
	}
	if streams.Stderr != nil {
		cmd.Stderr = streams.Stderr
	}
	if streams.Terminal {
		cmd.Stderr = cmd.Stdout
	}
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	p := &process{cmd: cmd, start: w, exited: make(chan struct{})}
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	_ = p.cmd.Wait()
	p.start.Close()
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus) //nolint:forcetypeassert // it is one on Linux
	p.exit = containerd.Exit{Status: status.ExitStatus(), At: time.Now(), OOM: p.oom}
	if status.Signaled() {
		p.exit.Status = 128 + int(status.Signal())
	}
	close(p.exited)
}

func (p *process) kill() { _ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL) }

// PID implements containerd.Process.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Wait implements containerd.Process.
func (p *process) Wait(ctx context.Context) (containerd.Exit, error) {
	select {
	case <-p.exited:
		return p.exit, nil
	case <-ctx.Done():
		return containerd.Exit{}, ctx.Err()
	}
}

// Signal implements containerd.Process.
func (p *process) Signal(_ context.Context, signal unix.Signal) error {
	if err := p.cmd.Process.Signal(signal); errors.Is(err, os.ErrProcessDone) {
		return containerd.ErrNotRunning
	}
	return nil
}

// Resize implements containerd.Process: it prints the size on the terminal.
func (p *process) Resize(_ context.Context, width, height uint16) error {
	if out, ok := p.cmd.Stdout.(*os.File); ok {
		f, err := os.OpenFile(out.Name(), os.O_WRONLY|unix.O_NONBLOCK, 0)
		if errors.Is(err, unix.ENXIO) {
			return containerd.ErrNotRunning
		}
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = fmt.Fprintf(f, "%dx%d\r\n", width, height)
		return err
	}
	return nil
}

func (h *Host) find(id string) (*container, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %s: %w", id, containerd.ErrNotFound)
}

// Start implements containerd.Runtime.
func (h *Host) Start(_ context.Context, id string) error {
	c, err := h.find(id)
	if err == nil {
		_, err = c.start.WriteString("go\n")
	}
	return err
}

// Exec implements containerd.Runtime.
func (h *Host) Exec(_ context.Context, e containerd.ExecOptions) (containerd.Process, error) {
	c, err := h.find(e.Container)
	if err != nil {
		return nil, err
	}
	var spec specs.Process
	if err := json.Unmarshal(e.Spec, &spec); err != nil {
		return nil, err
	}
	if err := lookUp(c.root, &spec); err != nil {
		return nil, err
	}
	p, err := launch(runScript, append([]string{c.root}, spec.Args...), spec.Env, e.Streams)
	if err == nil {
		_, err = p.start.WriteString("go\n")
	}
	return p, err
}

// KillAll implements containerd.Runtime.
func (h *Host) KillAll(_ context.Context, id string, signal unix.Signal) error {
	return h.group(id, signal)
}

// Pause implements containerd.Runtime.
func (h *Host) Pause(_ context.Context, id string) error { return h.group(id, unix.SIGSTOP) }

// Resume implements containerd.Runtime.
func (h *Host) Resume(_ context.Context, id string) error { return h.group(id, unix.SIGCONT) }

func (h *Host) group(id string, signal unix.Signal) error {
	c, err := h.find(id)
	if err != nil {
		return err
	}
	return unix.Kill(-c.PID(), signal)
}

// Update implements containerd.Runtime. It accepts everything.
func (h *Host) Update(_ context.Context, id string, _ []byte) error {
	_, err := h.find(id)
	return err
}

// Stats implements containerd.Runtime.
func (h *Host) Stats(_ context.Context, id string) (*stats.Metrics, error) {
	if _, err := h.find(id); err != nil {
		return nil, err
	}
	return &stats.Metrics{
		Pids: &stats.PidsStat{Current: 1}, CPU: &stats.CPUStat{UsageUsec: 1000}, Memory: &stats.MemoryStat{Usage: 4096, UsageLimit: 1 << 30},
	}, nil
}

// Delete implements containerd.Runtime.
func (h *Host) Delete(ctx context.Context, id string) error {
	path := filepath.Join(h.Dir, id)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	c := h.containers[id]
	delete(h.containers, id)
	h.mu.Unlock()
	if c != nil {
		c.kill()
		if _, err := c.Wait(ctx); err != nil {
			return err
		}
		return os.Remove(path)
	}
	var p procid.ID
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	if p.Alive() {
		_ = unix.Kill(-p.PID, unix.SIGKILL)
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

func (h *Host) record(id string, pid int) error {
	p, err := procid.Of(pid)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(h.Dir, id), p, 0o600, atomicfile.Volatile)
}
