package probe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

func prober(t *testing.T) probe.Prober {
	t.Helper()
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	return probe.Prober{
		Driver: d, VM: hypervisortest.VMConfig(t), Check: check,
		Dir: hypervisortest.Dir(t), Path: filepath.Join(t.TempDir(), "kvm.json"),
	}
}

// check returns when ctx ends, as a check must: the guest may never answer.
func check(ctx context.Context, v hypervisor.VM) error {
	conn, err := v.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write([]byte("echo up\n")); err != nil {
		return err
	}
	if _, err = conn.Read(make([]byte, 8)); err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return err
}

// TestProbe runs on any host: one with a working KVM, with a broken one, or without. Each must end with an accelerator
// that boots the guest. A KVM that hangs cannot be distinguished from a busy host.
func TestProbe(t *testing.T) {
	ctx := hypervisortest.Within(t)
	p := prober(t)
	accel, v, err := p.Resolve(ctx, hypervisor.Auto)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %+v", accel, v)
	if v.Reason == "" {
		t.Errorf("verdict %+v", v)
	}
	if (accel == hypervisor.KVM) != (v.Outcome == probe.Works) {
		t.Errorf("%s by verdict %+v", accel, v)
	}
	left, err := os.ReadDir(p.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	again := hypervisor.KVM // has the same verdict
	if v.Outcome == probe.Unknown {
		again = hypervisor.Auto
		if !strings.Contains(v.Reason, "did not boot under it within") {
			t.Errorf("verdict %+v", v)
		}
	}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		p.Check = func(context.Context, hypervisor.VM) error {
			t.Error("probed again in spite of a verdict")
			return nil
		}
	}
	_, next, err := p.Resolve(ctx, again)
	if want := again == hypervisor.KVM && v.Outcome != probe.Works; errors.Is(err, probe.ErrUnusable) != want {
		t.Errorf("a demand for KVM: %v", err)
	}
	if next.Outcome != v.Outcome || next.Reason != v.Reason {
		t.Errorf("verdict changed: %+v, then %+v", v, next)
	}
}

func TestWishes(t *testing.T) {
	p := prober(t)
	if accel, _, err := p.Resolve(t.Context(), hypervisor.TCG); accel != hypervisor.TCG || err != nil {
		t.Errorf("tcg: %s, %v", accel, err)
	}
	if _, _, err := p.Resolve(t.Context(), "hvf"); !errors.Is(err, hypervisor.ErrInvalid) {
		t.Errorf("hvf: %v", err)
	}
	p.Device = filepath.Join(t.TempDir(), "kvm")
	accel, v, err := p.Resolve(t.Context(), hypervisor.Auto)
	if accel != hypervisor.TCG || err != nil || v.Outcome != probe.Unusable || v.Remedy == "" {
		t.Errorf("no device: %s, %+v, %v", accel, v, err)
	}
}

// fails is a driver that cannot start a VM.
type fails struct {
	hypervisor.Driver
	boots *int
	err   error
}

func (f fails) Identity(context.Context, hypervisor.VMConfig) (string, error) { return "fails", nil }

func (f fails) Boot(ctx context.Context, _ hypervisor.VMConfig, _ hypervisor.Files, _ hypervisor.Options) (hypervisor.VM, error) {
	*f.boots++
	if f.err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, f.err
}

// gone returns the error of a VM that has ended.
func gone(how, stderr string) error {
	return &hypervisor.Error{Err: fmt.Errorf("%w: QEMU ended: %s", hypervisor.ErrGone, how), Stderr: stderr}
}

// TestOneVerdict: VMs of all sizes share a verdict if they have the same guest.
func TestOneVerdict(t *testing.T) {
	boots := 0
	p := probe.Prober{
		Driver: arguments{fails{boots: &boots, err: gone("signal: aborted", "")}},
		Dir:    t.TempDir(), Path: filepath.Join(t.TempDir(), "kvm.json"), Device: "/dev/null",
	}
	for _, memory := range []int{256, 512} {
		p.VM = hypervisor.VMConfig{Kernel: "k", Memory: memory, VCPUs: memory / 256}
		if v, err := p.Verdict(t.Context()); err != nil || v.Outcome != probe.Unusable {
			t.Errorf("%+v, %v", v, err)
		}
	}
	if boots != 1 {
		t.Errorf("%d boots, want 1", boots)
	}
}

// arguments is a driver with a different identity for each VM.
type arguments struct{ fails }

func (arguments) Identity(_ context.Context, m hypervisor.VMConfig) (string, error) {
	return fmt.Sprint(m), nil
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error // nil hangs
		want probe.Outcome
	}{
		{"QEMU aborts", gone("signal: aborted", "failed to set MSR 0x10a"), probe.Unusable},
		{"guest dies", gone("the guest's kernel died or rebooted", ""), probe.Unusable},
		{"guest hangs, or the host is busy", nil, probe.Unknown},
		{"host kills QEMU", gone("signal: killed", ""), probe.Unknown},
		{"host has no memory", gone("exit status 1", "cannot set up guest memory 'mem': Cannot allocate memory"), probe.Unknown},
		{"host has no processes", &hypervisor.Error{Err: unix.EAGAIN}, probe.Unknown},
		{"kernel missing", &hypervisor.Error{Err: os.ErrNotExist}, probe.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			boots := 0
			p := probe.Prober{
				Driver: fails{boots: &boots, err: c.err}, Timeout: 20 * time.Millisecond,
				Dir: t.TempDir(), Path: filepath.Join(t.TempDir(), "kvm.json"), Device: "/dev/null",
			}
			for range 2 {
				v, err := p.Verdict(t.Context())
				if err != nil || v.Outcome != c.want {
					t.Fatalf("verdict %+v, %v", v, err)
				}
			}
			if boots != 1 {
				t.Errorf("%d boots for two verdicts", boots)
			}
		})
	}
}

// TestUndecided: an unknown verdict is valid for a while, longer each time, and never if KVM is required.
func TestUndecided(t *testing.T) {
	for _, c := range []struct {
		name         string
		tries, boots int
		age          time.Duration
		outcome      probe.Outcome
		wish         hypervisor.Accel
	}{
		{"a while ago", 1, 0, 4 * time.Minute, probe.Unknown, hypervisor.Auto},
		{"longer ago", 1, 1, 6 * time.Minute, probe.Unknown, hypervisor.Auto},
		{"for the second time", 2, 0, 9 * time.Minute, probe.Unknown, hypervisor.Auto},
		{"for the third time, longer ago", 3, 1, 21 * time.Minute, probe.Unknown, hypervisor.Auto},
		{"for the hundredth time", 100, 0, 23 * time.Hour, probe.Unknown, hypervisor.Auto},
		{"for the hundredth time, longer ago", 100, 1, 25 * time.Hour, probe.Unknown, hypervisor.Auto},
		{"by another clock", 1, 1, -time.Hour, probe.Unknown, hypervisor.Auto},
		{"and KVM is demanded", 1, 1, time.Minute, probe.Unknown, hypervisor.KVM},
		{"of nonsense", -5, 0, time.Minute, probe.Unknown, hypervisor.Auto},
		{"decided", 0, 0, 1000 * time.Hour, probe.Unusable, hypervisor.KVM},
	} {
		boots := 0
		p := probe.Prober{
			Driver: fails{boots: &boots}, Timeout: 20 * time.Millisecond,
			Dir: t.TempDir(), Path: filepath.Join(t.TempDir(), "kvm.json"), Device: "/dev/null",
		}
		old, err := p.Verdict(t.Context())
		if err != nil || old.Tries != 1 {
			t.Fatalf("%+v, %v", old, err)
		}
		boots = 0
		old.Outcome, old.Tries, old.Probed = c.outcome, c.tries, time.Now().Add(-c.age)
		if err := atomicfile.WriteJSON(p.Path, old, 0o600, atomicfile.Volatile); err != nil {
			t.Fatal(err)
		}
		_, v, err := p.Resolve(t.Context(), c.wish)
		if c.wish == hypervisor.Auto && err != nil || boots != c.boots || v.Tries != c.tries+c.boots {
			t.Errorf("%s: %d boots, %+v, %v", c.name, boots, v, err)
		}
	}
}

func TestVerdictOfAnotherBootIsForgotten(t *testing.T) {
	boots := 0
	p := probe.Prober{
		Driver: fails{boots: &boots, err: gone("broken", "")},
		Dir:    t.TempDir(), Path: filepath.Join(t.TempDir(), "kvm.json"), Device: "/dev/null",
	}
	old := probe.Verdict{Outcome: probe.Works, Boot: "another"}
	if err := atomicfile.WriteJSON(p.Path, old, 0o600, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	if v, err := p.Verdict(t.Context()); err != nil || v.Outcome != probe.Unusable || boots != 1 {
		t.Errorf("verdict %+v after %d boots, %v", v, boots, err)
	}
}
