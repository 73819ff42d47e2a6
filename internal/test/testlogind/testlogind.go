// Package testlogind provides tests with a message bus and a fake of systemd's logind on it, with the functions for
// delaying a host's shutdown.
package testlogind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"golang.org/x/sys/unix"
)

// The names of logind on the bus.
const (
	Service   = "org.freedesktop.login1"
	Manager   = Service + ".Manager"
	Path      = dbus.ObjectPath("/org/freedesktop/login1")
	Preparing = "PrepareForShutdown"
)

// Bus starts a message bus. It ends with the test.
func Bus(t *testing.T) (address string) {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Fatalf("%v: install the package dbus", err)
	}
	cmd := exec.Command(daemon, "--session", "--nofork", "--print-address", "--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// Logind is a fake logind. Its methods must be called by the test's goroutine.
type Logind struct {
	// Conn is its connection to the bus: closing it ends logind.
	Conn *dbus.Conn
	// Held are the locks that were granted, Asked the bus names of the clients that requested them.
	Held  chan *Lock
	Asked chan string
	props *prop.Properties
}

// Lock delays the host's shutdown. It is a pipe; its holder has a copy of one end.
type Lock struct {
	r *os.File
	w int
}

// Start starts logind on a bus. Its locks delay the host's shutdown by up to delay. If down is set, a shutdown is near.
// It ends with the test.
func Start(t *testing.T, address string, delay time.Duration, down bool) *Logind {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &Logind{Conn: conn, Held: make(chan *Lock, 8), Asked: make(chan string, 8)}
	l.props, err = prop.Export(conn, Path, prop.Map{Manager: {
		"InhibitDelayMaxUSec": {Value: uint64(delay.Microseconds())}, "PreparingForShutdown": {Value: down},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Export(&served{l}, Path, Manager); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName(Service, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
	return l
}

// served has the methods on the bus.
type served struct{ *Logind }

// Inhibit grants a lock, which is released when it is closed.
func (s *served) Inhibit(by dbus.Sender, what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(fmt.Errorf("%s, %s", what, mode))
	}
	if down, _ := s.props.GetMust(Manager, "PreparingForShutdown").(bool); down {
		return 0, dbus.MakeFailedError(errors.New("the operation is already running"))
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	s.Asked <- string(by)
	s.Held <- &Lock{os.NewFile(uintptr(p[0]), "lock"), p[1]}
	return dbus.UnixFD(p[1]), nil
}

// Prepare announces that the host shuts down, or that it does not.
func (l *Logind) Prepare(t *testing.T, down bool) {
	t.Helper()
	l.props.SetMust(Manager, "PreparingForShutdown", down)
	if err := l.Conn.Emit(Path, Manager+"."+Preparing, down); err != nil {
		t.Fatal(err)
	}
}

// Lock returns the next requested lock.
func (l *Logind) Lock(ctx context.Context, t *testing.T) *Lock {
	t.Helper()
	select {
	case h := <-l.Held:
		t.Cleanup(func() {
			_ = h.r.Close()
			if h.w >= 0 {
				_ = unix.Close(h.w)
			}
		})
		return h
	case <-ctx.Done():
		t.Fatal("no lock delays the host's shutdown")
		return nil
	}
}

// Released waits until the lock's holder has closed its copy.
func (h *Lock) Released(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := unix.Close(h.w); err != nil {
		t.Fatal(err)
	}
	h.w = -1
	defer context.AfterFunc(ctx, func() { _ = h.r.SetReadDeadline(time.Now()) })()
	if _, err := h.r.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("it is held: %v", err)
	}
}
