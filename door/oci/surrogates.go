package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/oci/surrogate"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/internal/userns"
)

// helper is a surrogate that takes orders.
type helper struct {
	id      procid.ID
	cmd     *exec.Cmd
	control *os.File
}

// helperOptions are the surroundings of a new surrogate.
type helperOptions struct {
	name       string // shown in lists of processes
	hostname   string
	streams    [3]*os.File
	terminal   bool
	descriptor []*os.File // from surrogate.StagingFD on; nil for none
	network    bool       // surrogate.NetworkFlag, with its descriptors
	cgroup     []string   // directories
	new        uintptr    // CLONE_NEW… flags
	join       []joined
	users      users
}

// joined is a namespace that a surrogate joins.
type joined struct {
	path string
	kind int // CLONE_NEW… flag
}

// users is the user namespace of a surrogate; the zero value is the door's.
type users struct {
	uids, gids []specs.LinuxIDMapping // of a new one
	path       string                 // of an existing one
}

// users returns the user namespace of a container's surrogate.
func (r *record) users() (u users, err error) {
	path := fmt.Sprintf("/proc/%d/ns/user", r.Surrogate.PID)
	same, err := userns.Same(path)
	if err != nil {
		return u, fmt.Errorf("find the container's users: %w", err)
	}
	if !same {
		u.path = path
	}
	return u, nil
}

// enter makes a command run as the namespace's root.
func (u users) enter(cmd *exec.Cmd) error {
	if len(u.uids) > 0 && u.path == "" {
		userns.EnterNew(cmd.SysProcAttr, mappings(u.uids), mappings(u.gids))
	}
	if u.path == "" {
		return nil
	}
	nsenter, err := exec.LookPath("nsenter") // a process with threads cannot join a user namespace
	if err != nil {
		return fmt.Errorf("join the user namespace %s: %w", u.path, err)
	}
	cmd.Args = append([]string{nsenter, "--user=" + u.path, "--", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = nsenter
	return nil
}

func mappings(of []specs.LinuxIDMapping) (all []syscall.SysProcIDMap) {
	for _, m := range of {
		all = append(all, syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)})
	}
	return all
}

// startHelper starts a surrogate. Its parent at its end gets its exit status.
func startHelper(o helperOptions) (*helper, error) {
	program, err := dirs.Sibling("bulkhead-surrogate")
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the surrogate: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "orders"), os.NewFile(uintptr(pair[1]), "orders")
	defer theirs.Close()
	cmd := exec.Command(program, o.name)
	if o.hostname != "" {
		cmd.Args = append(cmd.Args, "--hostname="+o.hostname)
	}
	if o.network {
		cmd.Args = append(cmd.Args, surrogate.NetworkFlag)
	}
	cmd.Dir, cmd.Env = "/", []string{"GOTRACEBACK=none", "GOMAXPROCS=1"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.streams[0], o.streams[1], o.streams[2]
	cmd.ExtraFiles = append([]*os.File{theirs}, o.descriptor...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: o.new}
	if err := o.users.enter(cmd); err != nil {
		ours.Close()
		return nil, err
	}
	if o.terminal {
		cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	}
	start := func(cmd *exec.Cmd) error { return startIn(o.join, cmd) }
	if err := thread.Do(func() error { return hostcgroup.At(o.cgroup).Start(cmd, start) }); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the surrogate: %w", err)
	}
	h := &helper{cmd: cmd, control: ours}
	if h.id, err = procid.Of(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, h.kill(context.Background()))
	}
	return h, nil
}

// startIn starts a command in existing namespaces. The calling thread stays in them, so it must end with its goroutine.
func startIn(join []joined, cmd *exec.Cmd) error {
	for _, j := range join {
		f, err := os.Open(j.path)
		if err == nil {
			err = unix.Setns(int(f.Fd()), j.kind)
			f.Close()
		}
		if err != nil {
			return fmt.Errorf("join the namespace %s: %w", j.path, err)
		}
	}
	return cmd.Start()
}

// orderWait bounds the answer to an order.
const orderWait = 30 * time.Second

// order gives an order and waits for the answer.
func (h *helper) order(ctx context.Context, kind string, fields ...string) error {
	return h.orderWith(ctx, kind, nil, fields...)
}

// orderWith is order with a file for the surrogate, unless it is nil.
func (h *helper) orderWith(ctx context.Context, kind string, file *os.File, fields ...string) error {
	message, err := surrogate.Order(kind, fields...)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(orderWait)
	if until, ok := ctx.Deadline(); ok && until.Before(deadline) {
		deadline = until
	}
	if err := unix.SetNonblock(int(h.control.Fd()), false); err != nil {
		return err
	}
	timeout := unix.NsecToTimeval(max(time.Until(deadline), time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(int(h.control.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if err := unix.Sendmsg(int(h.control.Fd()), message, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("order %s: %w", kind, err)
	}
	answer := make([]byte, 4096)
	n, err := h.control.Read(answer)
	switch {
	case err != nil:
		return fmt.Errorf("order %s: %w", kind, err)
	case n == 0:
		return fmt.Errorf("order %s: the surrogate has ended", kind)
	case string(answer[:n]) != surrogate.Done:
		return fmt.Errorf("order %s: %s", kind, answer[:n])
	}
	return nil
}

// kill ends the surrogate and waits for its end.
func (h *helper) kill(context.Context) error {
	err := h.cmd.Process.Kill()
	_ = h.cmd.Wait()  // "signal: killed"
	h.control.Close() // after the kill, so that the surrogate does not complain
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return err
}

// release lets the surrogate live on.
func (h *helper) release(ctx context.Context) error {
	if err := h.order(ctx, surrogate.Release); err != nil {
		return err
	}
	return h.control.Close()
}
