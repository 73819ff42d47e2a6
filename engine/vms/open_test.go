package vms

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisorfake"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// empty creates an empty file.
func empty(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpen checks that Open fails without QEMU, or if the directory for sockets cannot be created.
func TestOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		qemu  string
		spoil string // a file with this name blocks a directory of the state
		want  string
	}{
		"all is there": {qemu: "true"},
		"no QEMU":      {qemu: "/nowhere/qemu", want: "find QEMU"},
		"no state":     {qemu: "true", spoil: ".", want: "not a directory"},
		"no sockets":   {qemu: "true", spoil: "p", want: "p: not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BULKHEAD_QEMU", tc.qemu)
			roots := dirs.Roots{Data: t.TempDir(), State: filepath.Join(t.TempDir(), "state")}
			if tc.spoil != "" {
				empty(t, filepath.Join(roots.State, tc.spoil))
			}
			h, err := Open(roots, guest.Bundle{}, slog.Default(), measure.Discard{})
			if tc.want != "" {
				if h != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%v, %v", h, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if list, err := h.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("%v, %v", list, err)
			}
			if info, err := os.Stat(h.prober.Dir); err != nil || !info.IsDir() {
				t.Errorf("the probe's sockets: %v", err)
			}
		})
	}
}

// TestAccel checks that the note says why KVM is not used.
func TestAccel(t *testing.T) {
	device := empty(t, filepath.Join(t.TempDir(), "kvm"))
	for _, tc := range []struct {
		name   string
		wish   hypervisor.Accel
		device string
		accel  hypervisor.Accel
		note   bool
		err    error
	}{
		{name: "it works", wish: hypervisor.Auto, device: device, accel: hypervisor.KVM},
		{name: "it is demanded", wish: hypervisor.KVM, device: device, accel: hypervisor.KVM},
		{name: "it is missing", wish: hypervisor.Auto, device: "/nowhere", accel: hypervisor.TCG, note: true},
		{name: "it is demanded and missing", wish: hypervisor.KVM, device: "/nowhere", err: probe.ErrUnusable},
		{name: "not requested", wish: hypervisor.TCG, device: "/nowhere", accel: hypervisor.TCG},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log strings.Builder
			h, m := fakeTemplates(t, &log)
			dir, err := os.MkdirTemp("", "m") // short, for sockets
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			h.prober.Prober = probe.Prober{
				Driver: h.driver, VM: m, Check: h.guest.Ready, Device: tc.device,
				Dir: dir, Path: filepath.Join(dir, "kvm.json"), Timeout: testdeadline.For(10 * time.Second),
			}
			accel, note, err := h.Accel(t.Context(), tc.wish)
			if accel != tc.accel || strings.Contains(note, tc.device) != tc.note || !tc.note && note != "" || !errors.Is(err, tc.err) {
				t.Errorf("%q, %q, %v", accel, note, err)
			}
		})
	}
}

// failing is a driver with VMs that fail for a reason other than KVM.
type failing struct {
	hypervisorfake.Driver
	boots int
}

func (d *failing) Boot(context.Context, hypervisor.VMConfig, hypervisor.Files, hypervisor.Options) (hypervisor.VM, error) {
	d.boots++
	return nil, unix.EAGAIN
}

// TestAccelUndecided checks that an inconclusive probe is repeated only for a pod that demands KVM.
func TestAccelUndecided(t *testing.T) {
	var log strings.Builder
	h, m := fakeTemplates(t, &log)
	d, path := &failing{}, filepath.Join(t.TempDir(), "kvm.json")
	h.prober.Prober = probe.Prober{Driver: d, VM: m, Device: "/dev/null", Dir: t.TempDir(), Path: path}
	for range 3 {
		if accel, note, err := h.Accel(t.Context(), hypervisor.Auto); accel != hypervisor.TCG || note == "" || err != nil {
			t.Errorf("%s, %q, %v", accel, note, err)
		}
	}
	if _, _, err := h.Accel(t.Context(), hypervisor.KVM); !errors.Is(err, probe.ErrUnusable) || d.boots != 2 {
		t.Errorf("after %d boots: %v", d.boots, err)
	}
}

// ending records the directories of ended VMs.
type ending struct {
	hypervisorfake.Driver
	ended []string
}

func (d *ending) End(_ context.Context, dir string) error {
	d.ended = append(d.ended, dir)
	return hypervisor.ErrGone
}

// TestEnd checks that the driver is not called without a directory.
func TestEnd(t *testing.T) {
	var d ending
	h, dir := &Templates{driver: &d}, t.TempDir()
	if err := h.End(t.Context(), filepath.Join(dir, "none")); err != nil || len(d.ended) != 0 {
		t.Errorf("ended %v, %v", d.ended, err)
	}
	if err := h.End(t.Context(), dir); !errors.Is(err, hypervisor.ErrGone) || len(d.ended) != 1 || d.ended[0] != dir {
		t.Errorf("ended %v, %v", d.ended, err)
	}
}
