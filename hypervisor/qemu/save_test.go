package qemu_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

// TestSave: a VM is saved only when the channel is disconnected, so that its clones read from their first host. Its
// guest writes all the time, and so always has a frame on its way.
func TestSave(t *testing.T) {
	v := newTalker(t)
	t.Run("while its host has stopped reading", func(t *testing.T) {
		conn := v.listen(t)
		state, saved := v.beginSave(t)
		select {
		case err := <-saved:
			t.Errorf("saved while a host was connected: %v", err)
		case <-time.After(300 * time.Millisecond):
			conn.Close()
			if err := <-saved; err != nil {
				t.Fatal(err)
			}
		}
		v.checkClone(t, state)
	})
	// QEMU gets the closed connection and the command to save at once. Without the wait a few in a hundred clones were
	// deaf.
	for i := range rounds(t) {
		t.Run(fmt.Sprintf("while QEMU is held around the close %d", i), func(t *testing.T) {
			conn := v.listen(t)
			v.signal(t, syscall.SIGSTOP)
			conn.Close()
			state, saved := v.beginSave(t)
			time.Sleep(15 * time.Millisecond)
			v.signal(t, syscall.SIGCONT)
			if err := <-saved; err != nil {
				t.Fatal(err)
			}
			v.checkClone(t, state)
		})
	}
}

// rounds returns how often a race is run.
func rounds(t *testing.T) int {
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		return 200
	}
	return 10
}

// talker is a VM that is saved again and again.
type talker struct {
	hypervisor.VM
	memory *os.File
}

func newTalker(t *testing.T) talker {
	t.Helper()
	m := hypervisortest.VMConfig(t)
	memory, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	if err := memory.Truncate(int64(m.Memory) << 20); err != nil {
		t.Fatal(err)
	}
	files := hypervisor.Files{Memory: memory, Console: hypervisortest.Console(t)}
	v, err := driver(t).Boot(within(t), m, files, hypervisortest.Options(t, "talker"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	hypervisortest.Ask(t, v, "chatter 1000000000")
	return talker{v, memory}
}

// listen connects to a guest and returns after its first line.
func listen(t *testing.T, v hypervisor.VM) (net.Conn, error) {
	t.Helper()
	conn, err := v.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(hypervisortest.Patience()))
	_, err = conn.Read(make([]byte, 100))
	return conn, err
}

func (v talker) listen(t *testing.T) net.Conn {
	t.Helper()
	if err := v.Resume(within(t)); err != nil {
		t.Fatal(err)
	}
	conn, err := listen(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (v talker) beginSave(t *testing.T) (*os.File, <-chan error) {
	t.Helper()
	state, err := os.Create(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	ctx, saved := within(t), make(chan error, 1)
	go func(ctx context.Context) { saved <- v.Save(ctx, state) }(ctx)
	return state, saved
}

func (v talker) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := v.Process().Signal(s); err != nil {
		t.Fatal(err)
	}
}

// checkClone checks that a clone of the VM, which is paused, reads from its first host.
func (v talker) checkClone(t *testing.T, state *os.File) {
	t.Helper()
	files := hypervisor.Files{Memory: v.memory, State: state, Console: hypervisortest.Console(t)}
	c, err := driver(t).Clone(within(t), v.Record().VM, files, hypervisortest.Options(t, "clone"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, c)
	if _, err := listen(t, c); err != nil {
		t.Errorf("the clone does not answer: %v", err)
	}
}
