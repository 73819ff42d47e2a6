package channel_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/channel"
	guestbundle "github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

// TestDialAgain: clones of a VM that was saved while its host did not read never answer over the first connection. Dial
// opens a second one.
func TestDialAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a VM")
	}
	driver, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	deaf := saveDeaf(t, driver)
	for range 3 {
		vm := deaf.Clone(t, driver)
		s, err := channel.Dial(timeout(t, time.Second), vm.Connect, channel.Options{Patience: time.Minute})
		if err == nil {
			s.Close()
			t.Fatal("the clone answers over its first connection: it is not deaf")
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		vm = deaf.Clone(t, driver)
		s, err = channel.Dial(hypervisortest.Within(t), vm.Connect, channel.Options{Patience: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

// saveDeaf saves a VM with an agent that is writing a frame which its connected host does not read.
func saveDeaf(t *testing.T, driver hypervisor.Driver) hypervisortest.Saved {
	t.Helper()
	bundle, err := guestbundle.Load(hypervisortest.Bundle(t))
	if err != nil {
		t.Fatal(err)
	}
	saved := hypervisortest.Saved{VM: hypervisor.VMConfig{
		Kernel: bundle.KernelPath(), Initrd: bundle.InitrdPath(), Cmdline: bundle.Cmdline,
		Accel: hypervisor.TCG, VCPUs: 1, Memory: 128, Network: hypervisor.NetworkNone,
	}}
	memory := open(t, "memory")
	if err := memory.Truncate(int64(saved.VM.Memory) << 20); err != nil {
		t.Fatal(err)
	}
	ctx := hypervisortest.Within(t)
	vm, err := driver.Boot(ctx, saved.VM, hypervisor.Files{Memory: memory, Console: hypervisortest.Console(t)},
		hypervisortest.Options(t, "deaf"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, vm)
	s, err := channel.Dial(ctx, vm.Connect, channel.Options{})
	if err != nil {
		t.Fatal(vm.Explain("reach the agent", err))
	}
	s.Close()

	conn, err := vm.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for err == nil { // until the buffers of guest and QEMU are full
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = conn.Write(frame(hello, 1, []byte("{}")))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	saved.Memory, saved.State = memory, open(t, "state")
	hypervisortest.SaveDeaf(ctx, t, vm, saved.State)
	return saved
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
