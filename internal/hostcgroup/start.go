package hostcgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
)

// Add moves a running process into the group. Starting it there is ten milliseconds faster, since the kernel waits for
// all processors.
func (g *Group) Add(pid int) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d into a cgroup: %w", pid, err)
		}
	}
	return nil
}

// Start starts a command that is in the group from its first instruction. start does the starting, on the calling
// thread; it may be another function than (*exec.Cmd).Start.
func (g *Group) Start(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	if g == nil {
		return start(cmd)
	}
	if unified(g.dirs[0]) {
		return g.startV2(cmd, start)
	}
	return thread.Do(func() error {
		// The thread joins the group and its child starts there.
		for _, dir := range g.dirs {
			if err := write(dir, "tasks", "0"); err != nil {
				return fmt.Errorf("enter a cgroup: %w", err)
			}
		}
		return start(cmd)
	})
}

// Doors opens the files to which a process with one thread writes "0" to join the group. The caller closes them. A nil
// group has none.
func (g *Group) Doors() (doors []*os.File, err error) {
	if g == nil {
		return nil, nil
	}
	name := "tasks" // for this file the kernel need not stop all processors
	if unified(g.dirs[0]) {
		name = "cgroup.procs"
	}
	for _, dir := range g.dirs {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			for _, f := range doors {
				f.Close()
			}
			return nil, fmt.Errorf("open a cgroup: %w", err)
		}
		doors = append(doors, f)
	}
	return doors, nil
}

func (g *Group) startV2(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	dir, err := os.OpenFile(g.dirs[0], unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("enter a cgroup: %w", err)
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return start(cmd)
}
