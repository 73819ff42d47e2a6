// Package warm forks running QEMU processes. It is the Go side of the library in preload, which is preloaded into a
// QEMU that becomes a parent. A child is a copy of its parent, threads and guest included. It is a child process of the
// caller.
package warm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
)

// Control talks to one parent. It is safe for concurrent use, and serves one request at a time. When it is closed, the
// parent ends.
type Control struct {
	mu   sync.Mutex
	conn *net.UnixConn
	peer *os.File // the parent's end, until it has been started
}

// Prepare changes cmd, a QEMU that is about to be started, so that it preloads the library and becomes a parent. The
// caller calls Started when cmd runs, and Close in any case.
func Prepare(cmd *exec.Cmd, library string) (*Control, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("prepare a warm parent: %w", err)
	}
	mine := os.NewFile(uintptr(pair[0]), "control")
	defer mine.Close()
	peer := os.NewFile(uintptr(pair[1]), "control of a parent")
	conn, err := net.FileConn(mine)
	if err != nil {
		peer.Close()
		return nil, fmt.Errorf("prepare a warm parent: %w", err)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, peer)
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+library, "BULKHEAD_FORK_FD="+strconv.Itoa(2+len(cmd.ExtraFiles)))
	return &Control{conn: conn.(*net.UnixConn), peer: peer}, nil
}

// Started closes the caller's copy of the parent's end.
func (c *Control) Started() error { return c.peer.Close() }

// Close ends the parent.
func (c *Control) Close() error { return c.conn.Close() }

// Confinement confines a child. With the zero value the child has its parent's confinement, no capabilities, and cannot
// gain privileges.
type Confinement struct {
	// Owner is the child's user and group; nil means the parent's.
	Owner *Owner
	// FileSize is the size limit of the child's files, in bytes; 0 means the parent's limit.
	FileSize uint64
	// Groups are the cgroups that the child joins: open files with a cgroup's list of processes or threads.
	Groups []*os.File
	// UserNS and NetNS are namespaces that the child joins. Landlock is a ruleset, and Filter the code of a seccomp
	// filter. Each may be nil.
	UserNS, NetNS, Landlock, Filter *os.File
	// Alone gives the child a new network namespace, which is empty.
	Alone bool
}

// Owner is a user and a group.
type Owner struct{ UID, GID int }

// ownSockets changes the owner of the sockets in the child's directory.
func (c Confinement) ownSockets(dir string) error {
	if c.Owner == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Lchown(filepath.Join(dir, e.Name()), c.Owner.UID, c.Owner.GID))
	}
	return err
}

// Request describes a child.
type Request struct {
	// Name replaces the parent's -name, and must have the same length.
	Name string
	// Files replace the parent's.
	Files []qemu.Inherited
	Confinement
}

// Answer describes a fork.
type Answer struct {
	PID                 int
	Threads, Tries      int
	Freeze, Fork, Ready time.Duration
}

var (
	// ErrFork is matched by every failure of a fork.
	ErrFork = errors.New("fork of a warm parent failed")
	// errGone is matched, beside ErrFork, when the parent does not answer any more.
	errGone = errors.New("the parent is gone")
)

const (
	version   = 1
	maxFiles  = 16
	maxGroups = 8
	nameSize  = 80
	textSize  = 160
	alone     = 1 << 4
)

type wireRequest struct {
	Version, Flags uint32
	UID, GID       int32
	FileSize       uint64
	Files, Groups  uint32
	Number         [maxFiles]int32
	Name           [nameSize]byte
}

type wireAnswer struct {
	Version                                   uint32
	PID, Error                                int32
	Threads, Tries, FreezeUS, ForkUS, ReadyUS uint32
	Text                                      [textSize]byte
}

// encode returns a request's packet and descriptors.
func (r Request) encode() ([]byte, []int, error) {
	if len(r.Files) > maxFiles || len(r.Groups) > maxGroups || len(r.Name) >= nameSize {
		return nil, nil, fmt.Errorf("%w: %d files, %d cgroups, a name of %d bytes", ErrFork, len(r.Files), len(r.Groups), len(r.Name))
	}
	w := wireRequest{
		Version: version, UID: -1, GID: -1, FileSize: r.FileSize,
		Files: uint32(len(r.Files)), Groups: uint32(len(r.Groups)),
	}
	if r.Owner != nil {
		w.UID, w.GID = int32(r.Owner.UID), int32(r.Owner.GID)
	}
	if r.Alone {
		w.Flags = alone
	}
	copy(w.Name[:], r.Name)
	var fds []int
	for i, f := range r.Files {
		w.Number[i] = int32(f.Number)
		fds = append(fds, int(f.File.Fd()))
	}
	for _, f := range r.Groups {
		fds = append(fds, int(f.Fd()))
	}
	for i, f := range []*os.File{r.UserNS, r.NetNS, r.Landlock, r.Filter} {
		if f != nil {
			w.Flags |= 1 << i
			fds = append(fds, int(f.Fd()))
		}
	}
	b, err := binary.Append(nil, binary.NativeEndian, w)
	return b, fds, err
}

// Fork creates a child. If it fails although the child exists, it kills and reaps the child. If ctx ends, Fork ends the
// parent too, since the parent may be in any state. A child that was not reported by then ends by itself, in the
// process group of its parent.
func (c *Control) Fork(ctx context.Context, r Request) (Answer, error) {
	packet, fds, err := r.encode()
	if err != nil {
		return Answer{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// An answer that was sent before the end can still be read; none can be sent after it.
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(c.conn.CloseWrite(), c.conn.CloseRead()) })
	defer stop()
	w, err := c.exchange(packet, fds)
	if err != nil {
		return Answer{}, also(fmt.Errorf("%w: %w: %w", ErrFork, errGone, also(err, ctx.Err())), killAndReap(int(w.PID)))
	}
	a := Answer{
		PID: int(w.PID), Threads: int(w.Threads), Tries: int(w.Tries),
		Freeze: us(w.FreezeUS), Fork: us(w.ForkUS), Ready: us(w.ReadyUS),
	}
	if w.Error == 0 {
		return a, nil
	}
	text, _, _ := bytes.Cut(w.Text[:], []byte{0})
	err = fmt.Errorf("%w: %s: %w", ErrFork, text, syscall.Errno(w.Error))
	return Answer{}, also(err, killAndReap(a.PID))
}

// also joins two errors in one line; more may be nil.
func also(err, more error) error {
	if more == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, more)
}

// killAndReap kills and reaps a child, or all of a process group if pid is negative; it ignores 0. It leaves processes
// alone that are not children of this process.
func killAndReap(pid int) error {
	if pid == 0 {
		return nil
	}
	for options := unix.WNOHANG; ; {
		n, err := unix.Wait4(pid, nil, options, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case err == nil && n == 0: // it runs
			_ = unix.Kill(pid, unix.SIGKILL)
			options = 0
		}
	}
}

// exchange sends a request and returns the last answer. If it fails, it returns the last answer before the error.
func (c *Control) exchange(packet []byte, fds []int) (w wireAnswer, err error) {
	if _, _, err := c.conn.WriteMsgUnix(packet, unix.UnixRights(fds...), nil); err != nil {
		return w, err
	}
	for {
		next, err := c.read()
		if err != nil {
			return w, err
		}
		if w = next; w.Error != int32(unix.EINPROGRESS) {
			return w, nil
		}
	}
}

func (c *Control) read() (w wireAnswer, err error) {
	answer := make([]byte, binary.Size(w))
	n, err := c.conn.Read(answer)
	if err == nil && n != len(answer) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		_, err = binary.Decode(answer, binary.NativeEndian, &w)
	}
	if err == nil && w.Version != version {
		err = fmt.Errorf("version %d instead of %d", w.Version, version)
	}
	return w, err
}

func us(n uint32) time.Duration { return time.Duration(n) * time.Microsecond }
