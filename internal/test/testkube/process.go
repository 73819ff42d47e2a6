package testkube

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

// Process is a program that runs for a test. Its methods must be called by the goroutine that started it.
type Process struct {
	cmd  *exec.Cmd
	wait func() error
}

// Run starts a command. It is killed at the test's end, and dies with the test's process. Its output is appended to the
// file NAME.log in the cluster's directory; a failed test shows the end of it.
func (c *Cluster) Run(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	path := filepath.Join(c.Dir, name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wait, err := testproc.Lasting(cmd)
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	p := &Process{cmd: cmd, wait: wait}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s:\n%s", name, tail(path))
		}
	})
	return p
}

// tail returns the end of a log.
func tail(path string) []byte {
	const most = 8 << 10
	log, _ := os.ReadFile(path)
	return bytes.TrimSpace(log[max(0, len(log)-most):])
}

// PID returns the program's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill kills the program, if it runs, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.wait() // its log has the reason of its end
}

// Stop terminates the program, and reports an error if it does not end, or ends with a failure.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(testdeadline.For(30*time.Second), func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	_ = p.wait()
	if !p.cmd.ProcessState.Success() {
		t.Errorf("%s: %v", filepath.Base(p.cmd.Args[0]), p.cmd.ProcessState)
	}
}
