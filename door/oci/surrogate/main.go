package surrogate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
	"github.com/bulkhead-project/bulkhead/shim/hostio"
)

func init() { //nolint:gochecknoinits // main.main runs on the main thread only if an init function has locked it
	// Other processes see the main thread's namespaces and root. Main enters namespaces on it.
	runtime.LockOSThread()
}

// hostnameFlag begins the argument with the host name of the surrogate's own UTS namespace.
const hostnameFlag = "--hostname="

// lostCode is the exit code of a process that was lost with its VM.
const lostCode = 137

// Main runs a surrogate. It returns the process's exit code. args are the arguments after the program's name.
func Main(args []string) int {
	s := &process{control: os.NewFile(ControlFD, "control")}
	unix.CloseOnExec(ControlFD)
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, hostnameFlag); ok && name != "" {
			_ = unix.Sethostname([]byte(name)) // only for a look at this process
		}
		if arg == NetworkFlag {
			unix.CloseOnExec(ServeFD)
			unix.CloseOnExec(ClientFD)
			go inside.Serve(os.NewFile(ServeFD, "namespace")) // only the main thread changes its file system
		}
	}
	// A network namespace of its own has a loopback, as the container's would.
	_ = raiseLoopback()
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	signal.Reset(unix.SIGURG, unix.SIGPIPE, unix.SIGCHLD, unix.SIGTTIN, unix.SIGTTOU)
	if err := s.obey(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-surrogate:", err)
		return 1
	}
	if s.vm != nil {
		return s.hold(signals)
	}
	go s.pass(signals)
	exit, err := s.conn.Wait(context.Background())
	if err != nil {
		return lostCode
	}
	s.conn.Close()
	return exit.Code
}

// process is the state of a surrogate.
type process struct {
	control  *os.File
	conn     *hostio.Conn
	terminal bool
	vm       *os.File // after Hold
}

// obey follows a door's orders until Release.
func (s *process) obey() error {
	defer s.control.Close()
	buf := make([]byte, maxOrder)
	for {
		n, file, err := receive(s.control, buf)
		if err != nil || n == 0 {
			return errors.New("the door has ended")
		}
		s.vm = cmp.Or(file, s.vm)
		kind, rest, _ := strings.Cut(string(buf[:n]), "\x00")
		answer := Done
		switch err := s.do(kind, strings.Split(rest, "\x00")); {
		case err != nil:
			answer = err.Error()
		case kind == Release && s.conn == nil && s.vm == nil:
			return errors.New("released without a process")
		}
		if _, err := s.control.WriteString(answer); err != nil {
			return fmt.Errorf("answer the door: %w", err)
		}
		if kind == Release {
			return nil
		}
	}
}

func (s *process) do(kind string, fields []string) error {
	switch kind {
	case Attach:
		t, err := parseTarget(fields)
		if err != nil {
			return err
		}
		return s.attach(t)
	case Stage:
		return stage()
	case View:
		return view(fields)
	case Hold:
		if s.vm == nil {
			return fmt.Errorf("%w: no process came with it", ErrOrder)
		}
		return nil
	case Enter:
		return enter()
	case Release:
		return nil
	}
	return fmt.Errorf("%w: %.80q", ErrOrder, kind)
}

// attach connects the streams to the process in the VM.
func (s *process) attach(t Target) error {
	dir, err := hostio.OpenDir(t.Dir)
	if err != nil {
		return err
	}
	progress, err := hostio.NewProgress()
	if err != nil {
		return err
	}
	files := hostio.Files{Progress: progress}
	if s.terminal = t.Terminal; t.Terminal {
		files.Terminal = os.Stdin
	} else {
		files.Stdout, files.Stderr = os.Stdout, os.Stderr
		if t.Stdin {
			files.Stdin = os.Stdin
		}
	}
	s.conn, err = hostio.Dial(context.Background(), dir, hostio.Process{Container: t.Container, Exec: t.Exec}, files)
	if err == nil {
		s.resize()
	}
	return err
}

// pass passes signals on to the process in the VM, for as long as this process lives.
func (s *process) pass(signals <-chan os.Signal) {
	for sig := range signals {
		number, ok := sig.(unix.Signal)
		switch {
		case ok && number == unix.SIGWINCH && s.terminal:
			s.resize()
		case ok:
			s.conn.Signal(int(number))
		}
	}
}

// resize passes the terminal's size on.
func (s *process) resize() {
	if !s.terminal {
		return
	}
	if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil && size.Row > 0 {
		s.conn.Resize(size.Row, size.Col)
	}
}

// raiseLoopback brings up the loopback of this process's network namespace.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
