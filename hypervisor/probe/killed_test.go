package probe_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// emulated is a driver that emulates its VMs where KVM does not work.
type emulated struct{ hypervisor.Driver }

func (e emulated) Boot(
	ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options,
) (hypervisor.VM, error) {
	m.Accel = hypervisor.TCG
	return e.Driver.Boot(ctx, m, f, o)
}

// killedIn names the directory of a probe that will be killed.
const killedIn = "BULKHEAD_TEST_PROBE"

// TestKilled: a probe's VM ends with the probing process.
func TestKilled(t *testing.T) {
	p := prober(t)
	if dir := os.Getenv(killedIn); dir != "" {
		probeForEver(t, p, dir)
		return
	}
	ctx := testdeadline.Context(t, 30*time.Second)
	prober := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilled$")
	prober.Env = append(os.Environ(), killedIn+"="+p.Dir)
	out, err := prober.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := prober.Start(); err != nil {
		t.Fatal(err)
	}
	var vm procid.ID
	lines := bufio.NewScanner(out)
	for vm.PID == 0 && lines.Scan() {
		var pid int
		if n, _ := fmt.Sscanf(lines.Text(), "vm %d", &pid); n == 1 {
			if vm, err = procid.Of(pid); err != nil {
				t.Error(err)
			}
		}
	}
	_ = prober.Process.Kill()
	_ = prober.Wait()
	if vm.PID == 0 {
		t.Fatal("no VM was probed with")
	}
	if err := vm.Wait(ctx); err != nil {
		t.Errorf("the probe's VM outlived it: %v, %v", err, vm.Signal(unix.SIGKILL))
	}
}

func probeForEver(t *testing.T, p probe.Prober, dir string) {
	p.Driver, p.Dir, p.Device, p.Timeout = emulated{p.Driver}, dir, "/dev/null", time.Minute
	p.Check = func(ctx context.Context, v hypervisor.VM) error {
		fmt.Println("\nvm", v.Process().PID)
		<-ctx.Done()
		return ctx.Err()
	}
	if _, err := p.Verdict(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSwept: the next probe removes the directory of a probe that was killed, but not of one that still runs.
func TestSwept(t *testing.T) {
	p := probe.Prober{
		Driver: fails{boots: new(int), err: errors.New("broken")},
		Dir:    t.TempDir(), Path: filepath.Join(t.TempDir(), "kvm.json"), Device: "/dev/null",
	}
	old, other := filepath.Join(p.Dir, "probe1", "x"), filepath.Join(p.Dir, "probe2")
	past := time.Now().Add(-time.Hour)
	if err := errors.Join(os.MkdirAll(old, 0o700), os.Mkdir(other, 0o700), os.Chtimes(filepath.Dir(old), past, past)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verdict(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(p.Dir)
	if err != nil || len(left) != 1 || left[0].Name() != "probe2" {
		t.Errorf("left: %v, %v", left, err)
	}
}
