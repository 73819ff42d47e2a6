package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// fakeVM is a VM without a process. A fake agent answers on its socket until the VM is killed.
type fakeVM struct {
	dir    string
	agent  *fakeAgent
	listen net.Listener
	cancel context.CancelFunc
	done   chan struct{}
	served sync.WaitGroup

	mu      sync.Mutex
	process procid.ID // zero for the test's own
	exit    error
	paused  bool
	grown   int
	slots   map[int]string // attached disks, by the names of their files
	conns   []net.Conn
	fail    map[string]error // by method
	killed  bool
}

func newFakeVM(t *testing.T, agent *fakeAgent) *fakeVM {
	t.Helper()
	dir, err := os.MkdirTemp("", "vm") // sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	v := &fakeVM{dir: dir, agent: agent, done: make(chan struct{}), slots: map[int]string{}, fail: map[string]error{}}
	if v.listen, err = net.Listen("unix", filepath.Join(dir, "channel.sock")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	v.served.Go(func() { v.accept(ctx) })
	t.Cleanup(func() {
		v.die(nil)
		v.served.Wait()
		os.RemoveAll(dir)
	})
	return v
}

// accept serves one connection at a time, like a chardev.
func (v *fakeVM) accept(ctx context.Context) {
	for {
		conn, err := v.listen.Accept()
		if err != nil {
			return
		}
		v.mu.Lock()
		v.conns = append(v.conns, conn)
		v.mu.Unlock()
		v.served.Go(func() {
			channel.Serve(ctx, conn, channel.Hello{Version: v.agent.version}, func(c net.Conn) {
				v.agent.serve(ctx, c)
			})
		})
	}
}

// cut breaks the host's connections; the VM lives on.
func (v *fakeVM) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.conns {
		c.Close()
	}
	v.conns = nil
}

// die ends the VM.
func (v *fakeVM) die(exit error) {
	v.mu.Lock()
	if v.killed {
		v.mu.Unlock()
		return
	}
	v.killed, v.exit = true, exit
	v.mu.Unlock()
	v.cancel()
	v.listen.Close()
	v.cut()
	close(v.done)
}

func (v *fakeVM) failing(method string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.killed {
		return hypervisor.ErrGone
	}
	return v.fail[method]
}

func (v *fakeVM) refuse(method string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fail[method] = err
}

func (v *fakeVM) Process() procid.ID {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.process != (procid.ID{}) {
		return v.process
	}
	id, _ := procid.Of(os.Getpid())
	return id
}

func (v *fakeVM) Record() hypervisor.Record {
	return hypervisor.Record{Process: v.Process(), Dir: v.dir, VM: testVMConfig()}
}
func (v *fakeVM) Timings() []hypervisor.Timing { return nil }

func (v *fakeVM) Connect(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(v.dir, "channel.sock"))
}

func (v *fakeVM) Pause(context.Context) error {
	err := v.failing("Pause")
	v.mu.Lock()
	defer v.mu.Unlock()
	v.paused = err == nil
	return err
}

func (v *fakeVM) Resume(context.Context) error {
	err := v.failing("Resume")
	v.mu.Lock()
	defer v.mu.Unlock()
	v.paused = false
	return err
}

func (v *fakeVM) Grow(_ context.Context, total int) (int, error) {
	err := v.failing("Grow")
	v.agent.note(fmt.Sprint("grow ", total))
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		return v.grown, err
	}
	v.grown = total
	return total, nil
}

func (v *fakeVM) AddCards(_ context.Context, taps []*os.File) error {
	err := v.failing("AddCards")
	for _, f := range taps {
		v.agent.note("card " + filepath.Base(f.Name()))
	}
	return err
}

func (v *fakeVM) Attach(_ context.Context, slot int, disk *os.File, _ hypervisor.DiskMode) error {
	if err := v.failing("Attach"); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.slots[slot] != "" {
		return errors.New("slot is taken")
	}
	v.slots[slot] = filepath.Base(disk.Name())
	return nil
}

func (v *fakeVM) Detach(_ context.Context, slot int) error {
	if err := v.failing("Detach"); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.slots, slot)
	return nil
}

func (v *fakeVM) Resize(_ context.Context, slot int, size int64) error { return v.failing("Resize") }

func (v *fakeVM) attached() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.slots)
}

func (v *fakeVM) Save(context.Context, *os.File) error { return errors.ErrUnsupported }
func (v *fakeVM) Done() <-chan struct{}                { return v.done }

func (v *fakeVM) Exit() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.exit
}

func (v *fakeVM) Kill(context.Context) error {
	v.mu.Lock()
	err := v.fail["Kill"]
	v.mu.Unlock()
	if err != nil {
		return err
	}
	v.die(errors.New("killed"))
	return nil
}

func (v *fakeVM) Explain(_ string, err error) error { return err }

func (v *fakeVM) Close() error { return nil }

func testVMConfig() hypervisor.VMConfig {
	return hypervisor.VMConfig{
		Kernel: "/vmlinux", Accel: hypervisor.TCG, VCPUs: 1, Memory: 256, MaxMem: 1024,
		Slots: 8, Scratch: 1, Network: hypervisor.NetworkNone,
	}
}

var _ hypervisor.VM = (*fakeVM)(nil)
