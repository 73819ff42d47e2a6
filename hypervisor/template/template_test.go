package template_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

func setUp(t *testing.T) (context.Context, *template.Store, qemu.Driver, dirs.Roots) {
	t.Helper()
	ctx := within(t)
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	r := dirs.Roots{Data: t.TempDir(), State: hypervisortest.Dir(t)}
	return ctx, template.Open(r, d), d, r
}

// guest is the tests' guest.
var guest = template.Guest{
	Ready: func(_ context.Context, v hypervisor.VM) error {
		_, err := hypervisortest.TryAsk(v, "set template")
		return err
	},
	Answer: func(ctx context.Context, v hypervisor.VM) error {
		answered := make(chan error, 1)
		go func() {
			_, err := hypervisortest.TryAsk(v, "get")
			answered <- err
		}()
		select {
		case err := <-answered:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	},
}

func clone(t *testing.T, d hypervisor.Driver, tmpl *template.Template) hypervisor.VM {
	t.Helper()
	memory, err := tmpl.Memory()
	if err != nil {
		t.Fatal(err)
	}
	return hypervisortest.Saved{VM: tmpl.Info.VM, Memory: memory, State: tmpl.State()}.Clone(t, d)
}

func TestTemplateLife(t *testing.T) {
	ctx, s, d, r := setUp(t)
	m := hypervisortest.VMConfig(t)
	if _, err := s.Get(ctx, m); !errors.Is(err, template.ErrMiss) || !strings.Contains(err.Error(), "none has been built") {
		t.Fatalf("Get from an empty store: %v", err)
	}
	// Two concurrent builders build one template.
	var wg sync.WaitGroup
	var built [2]*template.Template
	for i := range built {
		wg.Go(func() {
			tmpl, why, err := s.Ensure(ctx, m, guest)
			if err != nil || !errors.Is(why, template.ErrMiss) {
				t.Errorf("Ensure: why %v, error %v%s", why, err, console(err))
				return
			}
			built[i] = tmpl
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if a, b := built[0].Info, built[1].Info; !a.Built.Equal(b.Built) {
		t.Errorf("two were built: at %v and %v", a.Built, b.Built)
	}
	built[1].Close()
	tmpl := built[0]
	defer tmpl.Close()
	all, err := s.List()
	if err != nil || len(all) != 1 || all[0].Key != tmpl.Info.Key || all[0].Reason == "" || all[0].Disk == 0 {
		t.Fatalf("List: %+v, %v", all, err)
	}
	if all[0].Disk >= int64(m.Memory)<<20 {
		t.Errorf("the template takes %d bytes on disk: it is not sparse", all[0].Disk)
	}
	t.Run("clones answer and are separate", func(t *testing.T) {
		a, b := clone(t, d, tmpl), clone(t, d, tmpl)
		hypervisortest.Ask(t, a, "set a")
		if got := hypervisortest.Ask(t, b, "get"); got != "template" {
			t.Errorf("a clone sees %q", got)
		}
	})
	t.Run("a clone cannot write the template", func(t *testing.T) { unwritable(t, clone(t, d, tmpl)) })
	t.Run("another VM misses, with the reason", func(t *testing.T) {
		other := m
		other.Memory += 2
		if _, err := s.Get(ctx, other); !errors.Is(err, template.ErrMiss) || !strings.Contains(err.Error(), "changed") {
			t.Errorf("Get: %v", err)
		}
	})
	t.Run("damage is found and repaired", func(t *testing.T) { damage(t, s, r, m, tmpl.Info) })
	t.Run("remove is idempotent and leaves nothing", func(t *testing.T) {
		for range 2 {
			if err := s.Remove(ctx, tmpl.Info.Key); err != nil {
				t.Fatal(err)
			}
		}
		left, err := os.ReadDir(r.Templates())
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if got := hypervisortest.Ask(t, clone(t, d, tmpl), "get"); got != "template" {
			t.Errorf("a clone of the open template says %q", got)
		}
	})
}

// unwritable does what a hostile QEMU could: it writes through the clone's own descriptor of the template's memory.
func unwritable(t *testing.T, v hypervisor.VM) {
	found := 0
	fds := filepath.Join("/proc", itoa(v.Process().PID), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(fds, e.Name())
		if target, _ := os.Readlink(path); !strings.HasPrefix(target, "/memfd:bulkhead-template") {
			continue
		}
		found++
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte("overwritten"), 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("pwrite: %v, want EPERM", err)
		}
		if err := f.Truncate(0); !errors.Is(err, unix.EPERM) {
			t.Errorf("ftruncate: %v, want EPERM", err)
		}
		if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
			t.Errorf("mmap writable and shared: %v, want EPERM", err)
		}
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); !errors.Is(err, unix.EPERM) {
			t.Errorf("punch a hole: %v, want EPERM", err)
		}
	}
	if found == 0 {
		t.Error("the clone has no descriptor of the template's memory")
	}
}

// damage damages the template in several ways. Each makes the store build it again, within a deadline for one build.
func damage(t *testing.T, s *template.Store, r dirs.Roots, m hypervisor.VMConfig, info template.Info) {
	dir := filepath.Join(r.Templates(), info.Key)
	memory := filepath.Join(dir, "memory")
	for _, c := range []struct {
		name   string
		damage func() error
	}{
		{"memory altered", func() error { return poke(memory, 1<<20) }},
		{"memory cut", func() error { return os.Truncate(memory, 1<<20) }},
		{"state altered", func() error { return poke(filepath.Join(dir, "state"), 1000) }},
		{"description cut", func() error { return os.Truncate(filepath.Join(dir, "template.json"), 40) }},
	} {
		if err := c.damage(); err != nil {
			t.Fatal(err)
		}
		tmpl, why, err := s.Ensure(within(t), m, guest)
		if err != nil || !errors.Is(why, template.ErrDamaged) {
			t.Fatalf("%s: why %v, error %v%s", c.name, why, err, console(err))
		}
		tmpl.Close()
	}
}

// console returns the console of the VM that failed with err, if it has one.
func console(err error) string {
	if e := (*hypervisor.Error)(nil); errors.As(err, &e) {
		return "; its console: " + e.Console
	}
	return ""
}

func poke(path string, offset int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte("damage"), offset)
	return err
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	ctx, s, _, r := setUp(t)
	broken := errors.New("agent is silent")
	var v hypervisor.VM
	_, err := s.Build(ctx, hypervisortest.VMConfig(t), template.Guest{Ready: func(_ context.Context, booted hypervisor.VM) error {
		v = booted
		return broken
	}}, "test")
	var e *hypervisor.Error
	if !errors.Is(err, broken) || !errors.As(err, &e) {
		t.Fatalf("Build: %v", err)
	}
	if v.Process().Alive() {
		t.Error("the VM still runs")
	}
	onlyLocks(t, r)
}

func onlyLocks(t *testing.T, r dirs.Roots) {
	t.Helper()
	for _, dir := range []string{r.Templates(), filepath.Join(r.State, "t")} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".lock") {
				t.Errorf("left in %s: %s", dir, e.Name())
			}
		}
	}
}

// TestKilledBuilder runs itself again as a builder, which is killed while its VM runs.
func TestKilledBuilder(t *testing.T) {
	if os.Getenv("BULKHEAD_TEST_BUILDER") != "" {
		ctx := within(t)
		d, _ := qemu.New()
		m := hypervisortest.VMConfig(t)
		m.Initrd = os.Getenv("BULKHEAD_TEST_INITRD")
		s := template.Open(dirs.Roots{Data: os.Getenv("BULKHEAD_TEST_DATA"), State: os.Getenv("BULKHEAD_TEST_STATE")}, d)
		_, err := s.Build(ctx, m, template.Guest{Ready: func(_ context.Context, v hypervisor.VM) error {
			return os.WriteFile(os.Getenv("BULKHEAD_TEST_PID"), []byte(itoa(v.Process().PID)), 0o600)
		}}, "test")
		t.Fatal(err)
	}
	ctx, s, _, r := setUp(t)
	fifo := filepath.Join(t.TempDir(), "pid")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledBuilder$")
	cmd.Env = append(
		os.Environ(),
		"BULKHEAD_TEST_BUILDER=1",
		"BULKHEAD_TEST_PID="+fifo,
		"TMPDIR="+t.TempDir(),
		"BULKHEAD_TEST_DATA="+r.Data,
		"BULKHEAD_TEST_STATE="+r.State,
		"BULKHEAD_TEST_INITRD="+hypervisortest.VMConfig(t).Initrd,
	)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(fifo) // opens when the builder's VM runs
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + string(pid)); err != nil {
		t.Fatalf("the VM did not outlive its builder: %v", err)
	}
	if err := s.Reap(ctx); err != nil {
		t.Fatal(err)
	}
	waitGone(ctx, t, string(pid))
	onlyLocks(t, r)
}
