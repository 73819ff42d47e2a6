// Package runtimes calls OCI runtimes as conmon and containerd's shim do, and times the calls.
package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// patience bounds a call.
const patience = time.Minute

// Runtime is an OCI runtime with its own directory.
type Runtime struct {
	// Command is the program with its global flags.
	Command []string
	// Env are additional variables.
	Env []string
	// Dir is an existing directory for its states and bundles.
	Dir string
	// Groups is the cgroup of the containers.
	Groups string
	// Unified runs the commands where only cgroup2 is mounted: Debian's crun refuses other hierarchies beside it.
	Unified bool
	Account *account.Account

	n int
}

// Life has the durations of the calls in the life of a container.
type Life struct{ Create, Start, Exec, Delete time.Duration }

// Live creates and starts a container that sleeps, executes true in it, kills it and deletes it.
func (r *Runtime) Live(ctx context.Context) (l Life, err error) {
	id, bundle, err := r.bundle()
	if err != nil {
		return l, err
	}
	pids := filepath.Join(bundle, "pid")
	if l.Create, err = r.run(ctx, "create", "--bundle", bundle, "--pid-file", pids, id); err != nil {
		return l, err
	}
	l.Start, err = r.run(ctx, "start", id)
	if err == nil {
		l.Exec, err = r.run(ctx, "exec", id, "true")
	}
	if err == nil {
		err = r.kill(ctx, id, pids)
	}
	if err != nil {
		_, failed := r.run(ctx, "delete", "--force", id)
		return l, errors.Join(err, failed)
	}
	l.Delete, err = r.run(ctx, "delete", id)
	return l, err
}

// kill kills a container's process and waits for its end.
func (r *Runtime) kill(ctx context.Context, id, pids string) error {
	pid, err := readPID(pids)
	if err != nil {
		return err
	}
	p, err := procid.Of(pid)
	if err != nil {
		return err
	}
	if _, err := r.run(ctx, "kill", id, "KILL"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.Wait(ctx)
}

func readPID(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// bundle makes the bundle of a new container. All share one root.
func (r *Runtime) bundle() (id, dir string, err error) {
	r.n++
	id = fmt.Sprint("c", r.n)
	dir = filepath.Join(r.Dir, id)
	root := filepath.Join(r.Dir, "root")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	if err := makeRoot(root); err != nil {
		return "", "", fmt.Errorf("make a root: %w", err)
	}
	spec, err := oci.New("", "sleep", "100000")
	if err != nil {
		return "", "", err
	}
	spec.Process.Rlimits = nil // the host's root may not raise them
	spec.Root.Path, spec.Linux.CgroupsPath = root, filepath.Join(r.Groups, id)
	kept := spec.Mounts[:0]
	for _, m := range spec.Mounts {
		if m.Type != "bind" { // the pod's shared memory
			kept = append(kept, m)
		}
	}
	spec.Mounts = kept
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	text, err := json.Marshal(spec)
	if err != nil {
		return "", "", err
	}
	return id, dir, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}

// makeRoot makes a root with busybox, unless it exists.
func makeRoot(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "bin/busybox"), busybox, 0o755),
		os.Symlink("busybox", filepath.Join(dir, "bin/true")), os.Symlink("busybox", filepath.Join(dir, "bin/sleep")))
}

// run runs a command of the runtime to its end.
func (r *Runtime) run(ctx context.Context, args ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := append(append([]string{}, r.Command...), "--root", filepath.Join(r.Dir, "state"))
	cmd := exec.CommandContext(ctx, all[0], append(all[1:], args...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), r.Env...), "/"
	if !r.Unified {
		result, err := site.Time(cmd, r.Account)
		return result.Took, err
	}
	var result site.Result
	err := thread.Do(func() (err error) {
		if err = unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err == nil {
			err = unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "")
		}
		if err == nil {
			result, err = site.Time(cmd, nil)
		}
		return err
	})
	return result.Took, err
}
