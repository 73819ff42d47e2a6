// Package cgroup reads and changes a container's cgroup2 directory.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mount is the mount point of cgroup2 in the guest.
const Mount = "/sys/fs/cgroup"

// Dir is a cgroup's directory.
type Dir string

// Values reads a file of "key value" lines.
func (d Dir) Values(file string) (map[string]uint64, error) {
	data, err := os.ReadFile(filepath.Join(string(d), file))
	if err != nil {
		return nil, err
	}
	return parseValues(string(data)), nil
}

func parseValues(data string) map[string]uint64 {
	values := map[string]uint64{}
	for line := range strings.Lines(data) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			values[key] = n
		}
	}
	return values
}

// Value reads a file that holds one number.
func (d Dir) Value(file string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(string(d), file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// Limit writes a file that holds one number.
func (d Dir) Limit(file string, n uint64) error {
	return os.WriteFile(filepath.Join(string(d), file), strconv.AppendUint(nil, n, 10), 0)
}

// OOMKills returns the number of processes that the OOM killer has killed.
func (d Dir) OOMKills() uint64 {
	values, err := d.Values("memory.events")
	if err != nil {
		return 0
	}
	return values["oom_kill"]
}

// Pids returns the processes of the cgroup and its descendants.
func (d Dir) Pids() ([]int, error) {
	pids := []int{}
	err := filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

// SignalAll sends a signal to every process of the cgroup.
func (d Dir) SignalAll(sig syscall.Signal) error {
	if sig == unix.SIGKILL {
		return os.WriteFile(filepath.Join(string(d), "cgroup.kill"), []byte("1"), 0)
	}
	pids, err := d.Pids()
	for _, pid := range pids {
		if e := unix.Kill(pid, sig); e != nil && e != unix.ESRCH {
			err = e
		}
	}
	return err
}

// Freeze stops or continues every process of the cgroup, and returns when that is done. After an error some processes
// may be stopped, until Thaw.
func (d Dir) Freeze(ctx context.Context, frozen bool) error {
	value := uint64(0)
	if frozen {
		value = 1
	}
	if err := d.Limit("cgroup.freeze", value); err != nil {
		return err
	}
	return d.await(ctx, "frozen", value)
}

// Thaw continues every process of the cgroup, and does not wait.
func (d Dir) Thaw() error { return d.Limit("cgroup.freeze", 0) }

// Remove kills the cgroup's processes and removes it. It succeeds if the cgroup does not exist.
func (d Dir) Remove(ctx context.Context) error {
	err := os.WriteFile(filepath.Join(string(d), "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.await(ctx, "populated", 0)
	}
	if err != nil {
		return fmt.Errorf("empty cgroup: %w", err)
	}
	var dirs []string
	_ = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := unix.Rmdir(dirs[i]); err != nil && err != unix.ENOENT {
			return fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
		}
	}
	return nil
}

// await waits for a value in cgroup.events. The kernel signals changes of that file with POLLPRI.
func (d Dir) await(ctx context.Context, key string, want uint64) error {
	f, err := os.Open(filepath.Join(string(d), "cgroup.events"))
	if err != nil {
		return err
	}
	defer f.Close()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	defer unix.Close(wake)
	gone := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(gone)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-gone
		}
	}()
	buf := make([]byte, 256)
	for {
		n, err := f.ReadAt(buf, 0)
		if n == 0 && err != nil {
			return err
		}
		if parseValues(string(buf[:n]))[key] == want {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("await %s=%d: %w", key, want, context.Cause(ctx))
		}
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("poll cgroup.events: %w", err)
		}
	}
}
