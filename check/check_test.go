package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// A failure makes the result false, warnings do not, and every finding has its probe's name.
func TestRun(t *testing.T) {
	probe := func(name string, f Finding) Probe {
		return Probe{name, func(context.Context) Finding { return f }}
	}
	for _, tc := range []struct {
		name   string
		probes []Probe
		able   bool
	}{
		{"all well", []Probe{probe("a", ok("fine"))}, true},
		{"a warning", []Probe{probe("a", ok("fine")), probe("b", warn("less", ""))}, true},
		{"a failure", []Probe{probe("a", fail("not", "do")), probe("b", ok("fine"))}, false},
	} {
		var names []string
		able, err := Run(t.Context(), tc.probes, func(f Finding) { names = append(names, f.Check) })
		if able != tc.able || err != nil || len(names) != len(tc.probes) || names[0] != "a" {
			t.Errorf("%s: able %v, %v, %v", tc.name, able, names, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if able, err := Run(ctx, []Probe{probe("a", ok("fine"))}, func(Finding) { t.Error("reported") }); able || err == nil {
		t.Errorf("cancelled: able %v, %v", able, err)
	}
}

// On a host without QEMU, guest and directories, each probe that needs them says so and tries nothing.
func TestNothingThere(t *testing.T) {
	if testing.Short() {
		t.Skip("makes network namespaces; make test runs it in its second pass")
	}
	dir := t.TempDir()
	t.Setenv("BULKHEAD_QEMU", filepath.Join(dir, "no-qemu"))
	t.Setenv("BULKHEAD_GUEST", filepath.Join(dir, "no-guest"))
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found := map[string]Finding{}
	probes := Probes(Options{Roots: dirs.Roots{Data: file + "/data", State: file + "/state"}})
	able, err := Run(t.Context(), probes, func(f Finding) { found[f.Check] = f })
	if able || err != nil {
		t.Errorf("able %v, %v", able, err)
	}
	for name, want := range map[string]Status{
		"directories": Fail, "disk": Fail, "QEMU": Fail, "guest": Fail, "accelerator": Warn, "boot": Fail, "network": Warn,
	} {
		if found[name].Status != want {
			t.Errorf("%s: %+v, want %s", name, found[name], want)
		}
	}
}

// An invalid kernel is reported within the boot's time, with QEMU's output, and leaves nothing behind.
func TestBrokenKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a virtual machine; make test runs it in its second pass")
	}
	m := emulated(t)
	m.bundle.Cmdline += " rdinit=/nosuch root=/dev/nosuch panic=-1"
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	f := m.boot(ctx)
	if f.Status != Fail || f.Detail == "" {
		t.Errorf("%+v", f)
	}
	t.Logf("%s\n%s", f.Reason, f.Detail)
}

// emulated returns this host without KVM. It checks that the probes leave nothing.
func emulated(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bhc") // short, because sockets lie below
	if err != nil {
		t.Fatal(err)
	}
	m := &host{options: Options{Roots: dirs.Roots{Data: dir + "/d", State: dir + "/s"}}, accel: "tcg"}
	t.Cleanup(func() {
		left, err := filepath.Glob(m.options.Roots.State + "/c*")
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	for _, ask := range []func(context.Context) Finding{m.directories, m.qemu, m.guest} {
		if f := ask(t.Context()); f.Status == Fail {
			t.Fatalf("%+v", f)
		}
	}
	return m
}

// TestForks forks a VM, and checks the reasons why it cannot.
func TestForks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts virtual machines; make test runs it in its second pass")
	}
	m := emulated(t)
	began := time.Now()
	f := m.forks(t.Context())
	if f.Status != OK {
		t.Errorf("%+v", f)
	}
	t.Logf("%s; that took %s", f.Reason, time.Since(began))
	dir := t.TempDir()
	t.Setenv("BULKHEAD_LIBEXEC", dir)
	if f := m.forks(t.Context()); f.Status != Warn || !strings.Contains(f.Reason, "bulkhead-warm.so") {
		t.Errorf("no library: %+v", f)
	}
	if err := os.WriteFile(filepath.Join(dir, "bulkhead-warm.so"), []byte("no library"), 0o755); err != nil {
		t.Fatal(err)
	}
	if f := m.forks(t.Context()); f.Status != Warn || f.Remedy == "" || strings.Contains(f.Reason, "\n") {
		t.Errorf("not a library: %+v", f)
	} else {
		t.Log(f.Reason, f.Detail)
	}
}
