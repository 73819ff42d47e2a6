package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// monitorRole is the variable that makes the test's program a monitor: the path of the runtime's pid file.
const monitorRole = "BULKHEAD_TEST_MONITOR"

// report is a message of a monitor. It writes one after the runtime's command, and one at the end of the process.
type report struct {
	Code   int // the exit code of the runtime's command
	PID    int // the process that the command left
	Status unix.WaitStatus
}

// monitor does the work of conmon and of containerd's shim for one container or exec. It runs the runtime's command,
// becomes the parent of the process that the command leaves, and reports the end of that process. It shares its standard
// streams with the runtime. Reports go to descriptor 3.
func monitor(command []string) int {
	runtime.LockOSThread() // the runtime's command dies with the monitor
	reports := json.NewEncoder(os.NewFile(3, "reports"))
	if err := monitorOnce(command, os.Getenv(monitorRole), reports); err != nil {
		fmt.Fprintln(os.Stderr, "monitor:", err)
		return 1
	}
	return 0
}

func monitorOnce(command []string, pidFile string, reports *json.Encoder) error {
	unix.CloseOnExec(3)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a reaper: %w", err)
	}
	if err := os.Unsetenv(monitorRole); err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "_OCI_SYNCPIPE=7", "_OCI_STARTPIPE=8") // conmon sets them
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return err
	}
	first := report{Code: cmd.ProcessState.ExitCode()}
	if first.Code != 0 {
		return reports.Encode(first)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	if first.PID, err = strconv.Atoi(string(text)); err != nil {
		return fmt.Errorf("the pid file: %w", err)
	}
	if err := reports.Encode(first); err != nil {
		return err
	}
	var last report
	for {
		_, err := unix.Wait4(first.PID, &last.Status, 0, nil)
		if err == nil {
			return reports.Encode(last)
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d, which the runtime left: %w", first.PID, err)
		}
	}
}

// process is the process that a runtime's create or exec left, with the streams that it got.
type process struct {
	pid            int
	stdin          *os.File
	stdout, stderr *transcript
	ended          chan unix.WaitStatus
}

// startMonitored runs a runtime's command with a monitor, and returns the process that it left, and the command's exit
// code. The command must write pidFile. A nil stdin is a pipe. After a failure, the process has no pid.
func startMonitored(ctx context.Context, t *testing.T, pidFile string, stdin *os.File, command ...string) (*process, int) {
	t.Helper()
	p := &process{ended: make(chan unix.WaitStatus, 1)}
	if stdin == nil {
		stdin, p.stdin = pipe(t)
		defer stdin.Close()
	}
	out, outEnd := pipe(t)
	errs, errsEnd := pipe(t)
	reports, reportsEnd := pipe(t)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", command...)
	cmd.Env = append(os.Environ(), monitorRole+"="+pidFile)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stdin, outEnd, errsEnd, []*os.File{reportsEnd}
	err := cmd.Start()
	for _, f := range []*os.File{outEnd, errsEnd, reportsEnd} {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.stdout, p.stderr = newTranscript(out), newTranscript(errs)
	lines := bufio.NewReader(reports)
	first, err := nextReport(lines)
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%s: the monitor ended: %v, %v: %s", strings.Join(command, " "), cmd.ProcessState, err, p.stderr.text())
	}
	p.pid = first.PID
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		if last, err := nextReport(lines); err == nil {
			p.ended <- last.Status
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { <-waited }) // the context kills the monitor
	return p, first.Code
}

func nextReport(lines *bufio.Reader) (r report, err error) {
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(line, &r)
}

// wait waits for the end of the process and returns its status.
func (p *process) wait(ctx context.Context, t *testing.T) unix.WaitStatus {
	t.Helper()
	select {
	case status := <-p.ended:
		return status
	case <-ctx.Done():
		t.Fatalf("process %d does not end: %v; it wrote %q and %q", p.pid, context.Cause(ctx), p.stdout.text(), p.stderr.text())
		return 0
	}
}

// expectExit waits for the end of the process, and checks its exit code.
func (p *process) expectExit(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	if status := p.wait(ctx, t); !status.Exited() || status.ExitStatus() != want {
		t.Errorf("the process ended with status %#x, want exit code %d; it wrote %q and %q", int(status), want, p.stdout.text(), p.stderr.text())
	}
}

// expectSignal waits for the end of the process, and checks the signal that ended it. A surrogate is process 1 of its
// namespace, which cannot kill itself: it exits with 128 and the signal's number, as clients compute it for a signal.
func (p *process) expectSignal(ctx context.Context, t *testing.T, want unix.Signal) {
	t.Helper()
	status := p.wait(ctx, t)
	signalled, exited := status.Signaled() && status.Signal() == want, status.Exited() && status.ExitStatus() == 128+int(want)
	if !signalled && !exited {
		t.Errorf("the process ended with status %#x, want signal %v; it wrote %q and %q", int(status), want, p.stdout.text(), p.stderr.text())
	}
}

// pipe returns a pipe that is closed at the test's end.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// patience bounds one case of a runtime on an idle host.
func patience(t *testing.T, r oci) context.Context {
	t.Helper()
	if r.vm {
		return testdeadline.Context(t, 30*time.Second)
	}
	return testdeadline.Context(t, 10*time.Second)
}
