// Package account counts the processor time of commands and of all processes that they start, with a cgroup around
// them.
package account

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// Account is a cgroup with another one inside it for the commands. Programs with their own cgroups for pods put
// them below it with the older controllers, and beside it with cgroup2. A nil Account counts nothing.
type Account struct {
	// Path is the cgroup's path below the top of its hierarchy.
	Path string

	dir   string
	inner *hostcgroup.Group
	read  func(dir string) (time.Duration, error)
}

// Open creates a cgroup of that name in the hierarchy that counts processor time.
func Open(name string) (*Account, error) {
	a := &Account{read: readV1}
	mount, own, ok := hostcgroup.Place("cpuacct")
	if !ok {
		a.read = readV2
		if mount, own, ok = hostcgroup.Place(""); !ok {
			return nil, errors.New("count processor time: no cgroup hierarchy is mounted")
		}
	}
	// Only root can use the top. Ordinary users use the cgroup delegated to their session.
	var errs []error
	for _, at := range []string{"/", filepath.Dir(own)} {
		a.Path = filepath.Join(at, name)
		a.dir = filepath.Join(mount, a.Path)
		err := a.create(filepath.Join(mount, at))
		if err == nil {
			return a, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("count processor time: %w", errors.Join(errs...))
}

func (a *Account) create(parent string) error {
	// Enable pods' limits where possible. A missing controller is ignored.
	_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0)
	inner := filepath.Join(a.dir, "commands")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		return err
	}
	a.inner = hostcgroup.At([]string{inner})
	_, err := a.Used()
	if err == nil {
		err = unix.Access(filepath.Join(parent, "cgroup.procs"), unix.W_OK)
	}
	if err != nil {
		return errors.Join(err, os.Remove(inner), os.Remove(a.dir))
	}
	return nil
}

// Start starts a command and counts it.
func (a *Account) Start(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	if a == nil {
		return start(cmd)
	}
	return a.inner.Start(cmd, start)
}

// Used returns the user and system time of all processes that were ever in the cgroup.
func (a *Account) Used() (time.Duration, error) {
	if a == nil {
		return 0, errors.New("processor time is not counted")
	}
	return a.read(a.dir)
}

func readV1(dir string) (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return time.Duration(n), err
}

func readV2(dir string) (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	return parseStat(string(b))
}

// parseStat parses a cpu.stat, with a line "name number" for each figure.
func parseStat(stat string) (time.Duration, error) {
	for line := range strings.Lines(stat) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, errors.New("cpu.stat has no usage_usec")
}

// Close waits until the last process has ended or ctx ends. Then it removes the cgroup, everything in it, and the
// cgroups at its path in other hierarchies.
func (a *Account) Close(ctx context.Context) error {
	if a == nil {
		return nil
	}
	var err error
	for _, dir := range slices.Backward(below(a.dir)) {
		err = errors.Join(err, hostcgroup.At([]string{dir}).Delete(ctx))
	}
	return errors.Join(err, Sweep(a.Path))
}

// Sweep removes the empty cgroups that programs created at that path in any hierarchy, and the cgroups below them.
func Sweep(path string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + path)
	if err != nil {
		return err
	}
	for _, root := range append(roots, "/sys/fs/cgroup"+path) {
		for _, dir := range slices.Backward(below(root)) {
			if rmErr := os.Remove(dir); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
				err = errors.Join(err, rmErr)
			}
		}
	}
	return err
}

// below returns a directory and all directories below it, parents first. It skips directories that have vanished.
func below(dir string) (dirs []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}
