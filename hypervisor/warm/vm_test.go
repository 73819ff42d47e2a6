package warm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

// forks is a driver whose clones are forks: the first clone of a saved VM starts a parent. It does what the engine and
// a shim do together.
type forks struct {
	qemu.Driver
	t       *testing.T
	mu      *sync.Mutex
	parents map[string]*Parent
}

func newForks(t *testing.T) forks {
	t.Helper()
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	return forks{d, t, &sync.Mutex{}, map[string]*Parent{}}
}

// library returns the path of the built library.
func library(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("boots VMs: not with -short")
	}
	dir := os.Getenv("BULKHEAD_LIBEXEC")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, "bulkhead-warm.so"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (d forks) parent(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, name string) (*Parent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := f.State.Name() + strings.Repeat("x", len(name))
	if p := d.parents[key]; p != nil {
		return p, nil
	}
	o := hypervisortest.Options(d.t, strings.Repeat("p", len(name)))
	f.Console = hypervisortest.Console(d.t)
	p, err := Start(ctx, d.Driver, library(d.t), m, f, o)
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hypervisortest.Patience())
		defer cancel()
		if err := p.Close(ctx); err != nil {
			d.t.Error(err)
		}
	})
	if err := p.Park(ctx); err != nil {
		return nil, err
	}
	d.parents[key] = p
	return p, nil
}

// Clone forks.
func (d forks) Clone(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	if err := errors.Join(m.Validate(), o.Validate()); err != nil {
		return nil, err
	}
	if f.State == nil {
		return d.Driver.Clone(ctx, m, f, o) // which refuses it
	}
	p, err := d.parent(ctx, m, f, o.Name)
	if err != nil {
		return nil, err
	}
	r, _, err := p.Fork(ctx, Child{Name: o.Name, Dir: o.Dir})
	if err != nil {
		return nil, err
	}
	go unix.Wait4(r.Process.PID, nil, 0, nil)
	v, err := d.Adopt(ctx, r, hypervisor.Files{Console: f.Console}, o)
	if err != nil {
		return nil, err
	}
	return v, v.Resume(ctx)
}

// TestConformance checks that a fork does all that a clone does.
func TestConformance(t *testing.T) {
	library(t)
	hypervisortest.Suite{Driver: newForks(t), VM: hypervisortest.VMConfig(t)}.Run(t)
}
