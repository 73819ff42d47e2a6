// Package launcher makes containers and starts processes in them with the guest's launcher, guest/launcher, which takes a
// fraction of the time of the OCI runtime. The launcher is a small program that the agent starts once, before the VM is
// saved as a template. So every clone of the VM has it ready.
//
// A request is one message on a socket. It carries descriptors: the process's streams, its cgroup, and a pipe for its
// report. An exec's also carries the container's first process, and a new container's carries a pipe for its start and the
// namespaces that it joins. The new process is a child of the agent. guest/launcher/launcher.h has the layout of both.
//
// The launcher does only the usual. Create and Exec return ErrDeclined for everything else, and the caller uses the OCI
// runtime. For processes it is:
//   - a terminal, a console size, labels, a personality, a user namespace, a time namespace, a seccomp notifier;
//   - seccomp flags, annotations for crun, unknown capabilities or limits;
//   - an environment without HOME, or without PATH if a command needs it; a relative directory; NUL bytes;
//   - more than 4,096 arguments and variables, or a message above 128 KiB.
//
// For containers it is also:
//   - device rules that the kernel refuses, a seccomp filter that is not compiled, sysctls, hooks;
//   - options of mounts that hold for all mounts below them (rro and others), tmpcopyup, id mappings, options of proc;
//   - block I/O limits, and memory and CPU settings that cgroup2 does not have;
//   - every unknown part of the specification, and everything that fails: crun has the better words for the error.
//
// A launcher that ends, answers garbage or nothing is killed, and Create and Exec decline from then on.
package launcher

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// ErrDeclined is matched by errors of Create and Exec after which the caller can use the OCI runtime: the process does not run.
var ErrDeclined = errors.New("the launcher cannot start it")

// ErrLost is matched, with ErrDeclined, by the error of the call that has found the launcher unusable.
var ErrLost = errors.New("the launcher is lost")

// answerTime is the longest time until the report of a request. It is long because a VM is slow when many run
// under emulation.
const answerTime = 30 * time.Second

// Launcher is a running launcher. Its methods are safe for concurrent use.
type Launcher struct {
	reaper *reaper.Reaper
	child  *reaper.Child
	conn   *net.UnixConn
	answer time.Duration // answerTime, except in tests

	mu   sync.Mutex
	lost bool
}

// Start starts the program, from sealed memory: a container that finds it in /proc cannot change it.
func Start(program string, r *reaper.Reaper) (*Launcher, error) {
	f, err := memfd.Program("launcher", program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("start the launcher: %w", err)
	}
	defer null.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the launcher: socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "launcher"), os.NewFile(uintptr(pair[1]), "launcher")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("start the launcher: %w", err)
	}
	l := &Launcher{reaper: r, conn: conn.(*net.UnixConn), answer: answerTime}
	l.child, err = r.Start(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), []string{"launcher"}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// Target is the place of a new process. The caller keeps all its parts.
type Target struct {
	Container *Container
	First     *reaper.Child // the container's first process
	Cgroup    string        // the container's directory
	Stdio     [3]*os.File   // nil is /dev/null
}

// Exec starts an OCI process, as spec.Process returns it, in a container. onExit is as in reaper.Adopt. The error is a
// *StepError if the process has no program that can run or no directory.
func (l *Launcher) Exec(process json.RawMessage, t Target, onExit func()) (*reaper.Child, error) {
	if l.isLost() {
		return nil, ErrDeclined
	}
	message, err := t.Container.encode(process)
	if err != nil {
		return nil, err
	}
	first, err := t.First.Open()
	if err != nil {
		return nil, decline("the container's first process: %w", err)
	}
	defer first.Close()
	return l.request(message, t.Stdio, t.Cgroup, []*os.File{first}, func(*reaper.Child) error { return nil }, onExit)
}

// request sends a request and returns the new process. The files follow the usual descriptors. adjust changes the process
// after its report.
func (l *Launcher) request(
	message []byte, stdio [3]*os.File, cgroup string, files []*os.File, adjust func(*reaper.Child) error, onExit func(),
) (*reaper.Child, error) {
	reports, theirs, err := os.Pipe()
	if err != nil {
		return nil, decline("%w", err)
	}
	defer reports.Close()
	defer l.reaper.Adopting()()
	err = l.send(message, stdio, cgroup, theirs, files)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	pid, err := l.follow(reports)
	if err != nil {
		return nil, err
	}
	child := l.reaper.Adopt(pid, onExit)
	if err := adjust(child); err != nil {
		_ = child.Signal(unix.SIGKILL) // it may have ended
		return nil, err
	}
	return child, nil
}

// send sends a request. reports is the pipe's end for the launcher.
func (l *Launcher) send(message []byte, stdio [3]*os.File, cgroup string, reports *os.File, files []*os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return decline("%w", err)
	}
	defer null.Close()
	group, err := os.Open(cgroup)
	if err != nil {
		return decline("%w", err)
	}
	defer group.Close()
	var fds []int
	for _, f := range append([]*os.File{stdio[0], stdio[1], stdio[2], group, reports}, files...) {
		if f == nil {
			f = null
		}
		fds = append(fds, int(f.Fd()))
	}
	if err := l.write(message, fds...); err != nil {
		return l.lose(err)
	}
	return nil
}

func (l *Launcher) write(message []byte, fds ...int) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.answer)); err != nil {
		return err
	}
	_, _, err := l.conn.WriteMsgUnix(message, unix.UnixRights(fds...), nil)
	return err
}

// follow reads the report, and returns the id of the process. If there is none in time, the process cannot run any more:
// it would fail to report.
func (l *Launcher) follow(reports *os.File) (pid int, err error) {
	var r [8]byte
	if err = reports.SetReadDeadline(time.Now().Add(l.answer)); err == nil {
		_, err = io.ReadFull(reports, r[:])
	}
	s, value := step(binary.LittleEndian.Uint32(r[:])), int(int32(binary.LittleEndian.Uint32(r[4:])))
	switch {
	case errors.Is(err, io.EOF) && !l.ended(), errors.Is(err, os.ErrDeadlineExceeded) && l.answers():
		return 0, fmt.Errorf("%w: the new process does not report: %w", ErrDeclined, err)
	case err != nil:
		return 0, l.lose(err)
	case s == running && value > 1:
		return value, nil
	case steps[s] == "":
		return 0, l.lose(fmt.Errorf("report %d: %w", s, unix.EBADMSG))
	case s >= directory && s <= open:
		return 0, &StepError{step: s, errno: syscall.Errno(value)}
	}
	return 0, fmt.Errorf("%w: %s: %w", ErrDeclined, steps[s], syscall.Errno(value))
}

// answers reports whether the launcher still serves requests: it drops an invalid one. After an answer, a missing report is
// the container's fault, for example because it is frozen.
func (l *Launcher) answers() bool {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return false
	}
	defer ours.Close()
	err = l.write([]byte{0}, int(theirs.Fd()))
	theirs.Close()
	if err == nil {
		err = ours.SetReadDeadline(time.Now().Add(l.answer))
	}
	if err == nil {
		_, err = ours.Read(make([]byte, 1))
	}
	return errors.Is(err, io.EOF)
}

// ended reports whether the launcher has ended.
func (l *Launcher) ended() bool {
	select {
	case <-l.child.Done():
		return true
	default:
		return false
	}
}

// lose kills the launcher.
func (l *Launcher) lose(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return fmt.Errorf("%w: %w", ErrDeclined, err)
	}
	l.lost = true
	_ = l.child.Signal(unix.SIGKILL) // it may have ended
	l.conn.Close()
	return fmt.Errorf("%w: %w: %w", ErrDeclined, ErrLost, err)
}

func (l *Launcher) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}
