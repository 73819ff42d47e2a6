package rehearsal

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// The program runs, writes its line and exits; with an argument it waits.
func TestProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, program(), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path).Output(); err != nil || string(out) != "ready\n" {
		t.Errorf("%q, %v", out, err)
	}
	waits := exec.CommandContext(t.Context(), path, "wait")
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	if err := waits.Process.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	err := waits.Wait()
	status, ok := waits.ProcessState.Sys().(interface{ Signaled() bool })
	if err == nil || !ok || !status.Signaled() {
		t.Errorf("it does not wait: %v", err)
	}
}

// The disk has the size of a slot and is read-only.
func TestImage(t *testing.T) {
	t.Parallel()
	f, err := Image()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != hypervisor.SlotSize {
		t.Errorf("size %v, %v", info, err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
		t.Errorf("open with %#x, %v", flags, err)
	}
	if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_WRITE == 0 {
		t.Errorf("seals %#x, %v", seals, err)
	}
}

// The script is valid and has a compiled seccomp profile, as pods have.
func TestScript(t *testing.T) {
	t.Parallel()
	r, err := Script()
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(r.Container, &spec); err != nil || spec.Annotations[agentv1.SeccompFilter] == "" {
		t.Errorf("%s, %v", r.Container, err)
	}
	if !json.Valid(r.Exec) {
		t.Errorf("%s", r.Exec)
	}
}
