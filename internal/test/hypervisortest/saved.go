package hypervisortest

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// Saved is a saved VM that clones start from.
type Saved struct {
	VM     hypervisor.VMConfig
	Memory *os.File // a sealed memfd
	State  *os.File
}

// Save boots m, lets its guest get ready, and saves it.
func Save(t testing.TB, d hypervisor.Driver, m hypervisor.VMConfig, ready func(hypervisor.VM)) Saved {
	t.Helper()
	ctx := Within(t)
	dir := t.TempDir()
	memory := create(t, filepath.Join(dir, "memory"))
	if err := memory.Truncate(int64(m.Memory) << 20); err != nil {
		t.Fatal(err)
	}
	s := Saved{VM: m, State: create(t, filepath.Join(dir, "state"))}
	v, err := d.Boot(ctx, m, hypervisor.Files{Memory: memory, Console: Console(t)}, Options(t, "template"))
	if err != nil {
		t.Fatal(err)
	}
	KillAtEnd(t, v)
	ready(v)
	if err := v.Save(ctx, s.State); err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	s.Memory = sealed(t, memory)
	return s
}

// cloneName is the name of VMs that Clone starts.
const cloneName = "clone"

// Clone starts a clone of s with the name "clone". It is killed when the test ends.
func (s Saved) Clone(t testing.TB, d hypervisor.Driver) hypervisor.VM {
	t.Helper()
	return s.CloneAs(t, d, Options(t, cloneName))
}

// CloneAs is like Clone with options.
func (s Saved) CloneAs(t testing.TB, d hypervisor.Driver, o hypervisor.Options) hypervisor.VM {
	t.Helper()
	ctx := Within(t)
	v, err := d.Clone(ctx, s.VM, hypervisor.Files{Memory: s.Memory, State: s.State, Console: Console(t)}, o)
	if err != nil {
		t.Fatal(err)
	}
	KillAtEnd(t, v)
	return v
}

// KillAtEnd kills v when the test ends.
func KillAtEnd(t testing.TB, v hypervisor.VM) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience())
		defer cancel()
		if err := v.Kill(ctx); err != nil {
			t.Error(err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Options returns options for one VM of a test.
func Options(t testing.TB, name string) hypervisor.Options {
	t.Helper()
	return hypervisor.Options{Dir: Dir(t), Name: name}
}

// Console returns a file for one VM's console.
func Console(t testing.TB) *os.File {
	t.Helper()
	return create(t, filepath.Join(t.TempDir(), "console"))
}

func create(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func sealed(t testing.TB, from *os.File) *os.File {
	t.Helper()
	f, err := memfd.Create("memory")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := io.Copy(f, io.NewSectionReader(from, 0, 1<<40)); err != nil {
		t.Fatal(err)
	}
	if err := memfd.Seal(f, memfd.Constant); err != nil {
		t.Fatal(err)
	}
	return f
}
