package worker

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// program builds a command without cgo and returns its path.
func program(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	build := testgo.Command(t.Context(), "build", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// TestConfine: the converter has only its memory and its open files, whichever user runs it.
func TestConfine(t *testing.T) {
	escape := program(t, "./testdata/escape")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o666); err != nil {
		t.Fatal(err)
	}
	open, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	victim := exec.CommandContext(t.Context(), "sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { _ = victim.Wait(); close(gone) }()
	cmd := exec.CommandContext(t.Context(), escape, secret, l.Addr().String(), strconv.Itoa(victim.Process.Pid))
	cmd.ExtraFiles = []*os.File{open}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(out); s.Scan(); {
		if lines = append(lines, s.Text()); strings.HasPrefix(s.Text(), "end: ") {
			break
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Error(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	checkStatus(t, string(status))
	select {
	case <-gone:
		t.Error("it ended another process")
	case <-time.After(50 * time.Millisecond):
		_ = victim.Process.Kill()
		<-gone
	}
	for _, line := range lines {
		what, result, _ := strings.Cut(line, ": ")
		works := what == "confine" || what == "end" || strings.HasPrefix(what, "may ")
		if works != (result == "<nil>") {
			t.Errorf("%s: %s", what, result)
		}
	}
	if len(lines) != 39 {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret" {
		t.Errorf("the file: %q, %v", data, err)
	}
}

// checkStatus inspects the process from outside.
func checkStatus(t *testing.T, status string) {
	t.Helper()
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "Uid", "Gid":
			for id := range strings.FieldsSeq(value) {
				if id == "0" {
					t.Errorf("%s %s: it still is root", name, value)
				}
			}
		case "Groups":
			if os.Geteuid() == 0 && value != "" {
				t.Errorf("groups %s", value)
			}
		case "CapPrm", "CapEff", "CapInh", "CapAmb":
			if strings.Trim(value, "0") != "" {
				t.Errorf("%s %s", name, value)
			}
		case "NoNewPrivs", "Seccomp_filters":
			if value == "0" {
				t.Errorf("%s %s", name, value)
			}
		}
	}
}

// TestConfineMemory: the converter's own memory is limited, by a limit of its own.
func TestConfineMemory(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), program(t, "./testdata/escape"), "/", "127.0.0.1:1", "1", "memory")
	cmd.Env = []string{"GOTRACEBACK=none"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "out of memory") {
		t.Errorf("%v: %.200s", err, out)
	}
}
