package shutdown

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// bus is a message bus of the test's own.
func bus(t *testing.T) (address string) {
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

// login1 is logind's part that a node needs.
type login1 struct {
	conn  *dbus.Conn
	props *prop.Properties
	held  chan *held
	node  chan string // who has asked for a lock
}

// held is a lock that was given: a pipe, whose one end is the node's as well.
type held struct {
	r *os.File
	w int
}

// Inhibit gives a lock, which is over when it is closed.
func (l *login1) Inhibit(node dbus.Sender, what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(fmt.Errorf("%s, %s", what, mode))
	}
	if down, _ := l.props.GetMust(manager, "PreparingForShutdown").(bool); down {
		return 0, dbus.MakeFailedError(errors.New("the operation is already running"))
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.node <- string(node)
	l.held <- &held{os.NewFile(uintptr(p[0]), "lock"), p[1]}
	return dbus.UnixFD(p[1]), nil
}

// logindOn has logind on a bus, which holds up the machine's end that long.
func logindOn(t *testing.T, address string, delay time.Duration, down bool) *login1 {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &login1{conn: conn, held: make(chan *held, 8), node: make(chan string, 8)}
	l.props, err = prop.Export(conn, path, prop.Map{manager: {
		"InhibitDelayMaxUSec": {Value: uint64(delay.Microseconds())}, "PreparingForShutdown": {Value: down},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Export(l, path, manager); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName(service, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
	return l
}

// prepare says that the machine goes down, or not.
func (l *login1) prepare(t *testing.T, down bool) {
	t.Helper()
	l.props.SetMust(manager, "PreparingForShutdown", down)
	if err := l.conn.Emit(path, manager+"."+preparing, down); err != nil {
		t.Fatal(err)
	}
}

// lock is the next lock.
func (l *login1) lock(ctx context.Context, t *testing.T) *held {
	t.Helper()
	select {
	case h := <-l.held:
		t.Cleanup(func() {
			_ = h.r.Close()
			if h.w >= 0 {
				_ = unix.Close(h.w)
			}
		})
		return h
	case <-ctx.Done():
		t.Fatal("nobody holds up the machine's end")
		return nil
	}
}

// released waits until nobody holds a lock, of which the node has got its copy.
func released(ctx context.Context, t *testing.T, h *held) {
	t.Helper()
	if err := unix.Close(h.w); err != nil {
		t.Fatal(err)
	}
	f := h.r
	h.w = -1
	if at, ok := ctx.Deadline(); ok {
		_ = f.SetReadDeadline(at)
	}
	if _, err := f.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("it is held: %v", err)
	}
}

// world is a node's side.
type world struct {
	mu      sync.Mutex
	ended   []string
	warned  []string
	changes chan bool
	m       *Manager
}

func newWorld(ctx context.Context, t *testing.T, address string, period, critical time.Duration) *world {
	t.Helper()
	w := &world{changes: make(chan bool, 8)}
	grace := int64(2)
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Spec.TerminationGracePeriodSeconds = name, &grace
		return p
	}
	w.m = New(Options{
		Period: period, Critical: critical, Address: address,
		Pods:       func() []*corev1.Pod { return []*corev1.Pod{pod("critical"), pod("slow"), pod("quick")} },
		IsCritical: func(p *corev1.Pod) bool { return p.Name == "critical" },
		End: func(ctx context.Context, p *corev1.Pod, grace int64) error {
			var err error
			if p.Name == "slow" {
				<-ctx.Done()
				err = ctx.Err()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended = append(w.ended, fmt.Sprintf("%s %d", p.Name, grace))
			return err
		},
		Changed: func() { _, ending := w.m.Ending(); w.changes <- ending },
		Warn: func(reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.warned = append(w.warned, reason+": "+message)
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { w.m.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// changed waits for the next change.
func (w *world) changed(ctx context.Context, t *testing.T, want bool) {
	t.Helper()
	select {
	case got := <-w.changes:
		if got != want {
			t.Errorf("ending: %t, want %t", got, want)
		}
	case <-ctx.Done():
		t.Fatal("nothing changes")
	}
}

// TestShutdown: the machine's end is held up until the pods have ended, or their time is over, the critical ones last;
// when it is called off, the next one is held up again.
func TestShutdown(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 30*time.Second)
	address := bus(t)
	l := logindOn(t, address, time.Minute, false)
	w := newWorld(ctx, t, address, 3*time.Second, 2*time.Second)
	lock := l.lock(ctx, t)
	l.prepare(t, true)
	w.changed(ctx, t, true)
	released(ctx, t, lock)
	w.mu.Lock()
	if got := []string{"quick 1", "slow 1", "critical 2"}; !slices.Equal(w.ended, got) {
		t.Errorf("ended: %v, want %v", w.ended, got)
	}
	w.mu.Unlock()
	l.prepare(t, false)
	w.changed(ctx, t, false)
	l.lock(ctx, t)
}

// TestShortDelay: what logind does not wait for is not waited for.
func TestShortDelay(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 30*time.Second)
	address := bus(t)
	l := logindOn(t, address, time.Second, false)
	w := newWorld(ctx, t, address, time.Hour, 0)
	lock := l.lock(ctx, t)
	began := time.Now()
	l.prepare(t, true)
	w.changed(ctx, t, true)
	released(ctx, t, lock)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestWithoutLogind: that there is none is told, and one that comes is found.
func TestWithoutLogind(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 30*time.Second)
	address := bus(t)
	w := newWorld(ctx, t, address, time.Second, 0)
	for {
		w.mu.Lock()
		n := len(w.warned)
		w.mu.Unlock()
		if n > 0 {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("nothing is told")
		}
	}
	if !strings.HasPrefix(w.warned[0], "GracefulNodeShutdownUnavailable: pods will not be ended") {
		t.Errorf("told: %v", w.warned)
	}
	logindOn(t, address, time.Minute, false).lock(ctx, t)
	none := newWorld(ctx, t, "unix:path="+filepath.Join(t.TempDir(), "none"), time.Second, 0)
	for {
		none.mu.Lock()
		n := len(none.warned)
		none.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("that there is no bus is not told")
		}
	}
}
