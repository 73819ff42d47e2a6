// Package testpty gives tests a pseudo-terminal.
package testpty

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// Terminal is a pseudo-terminal with the test as its user. It ends with the test. Its methods must be called by the
// test's goroutine.
type Terminal struct {
	t             testing.TB
	master, slave *os.File

	mu    sync.Mutex
	said  strings.Builder
	heard chan struct{} // holds one value
}

// New creates a terminal of a size.
func New(t testing.TB, rows, columns uint16) *Terminal {
	t.Helper()
	master, slave := Open(t)
	p := &Terminal{t: t, master: master, slave: slave, heard: make(chan struct{}, 1)}
	p.Resize(rows, columns)
	go p.listen()
	return p
}

// Open opens both ends of a terminal, and closes them at the test's end.
func Open(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// Raw puts a terminal into raw mode.
func Raw(t testing.TB, slave *os.File) {
	t.Helper()
	if _, err := term.MakeRaw(int(slave.Fd())); err != nil {
		t.Fatal(err)
	}
}

// listen stores the output, until the terminal is closed.
func (p *Terminal) listen() {
	for b := make([]byte, 4096); ; {
		n, err := p.master.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.said.Write(b[:n])
		p.mu.Unlock()
		select {
		case p.heard <- struct{}{}:
		default:
		}
	}
}

// Resize changes the terminal's size, which notifies its programs.
func (p *Terminal) Resize(rows, columns uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		p.t.Fatal(err)
	}
}

// Modes returns the terminal's settings.
func (p *Terminal) Modes() unix.Termios {
	p.t.Helper()
	m, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *m
}

// Type types a text.
func (p *Terminal) Type(text string) {
	p.t.Helper()
	if _, err := p.master.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// Expect waits until the terminal shows a match, and drops the output up to its end.
func (p *Terminal) Expect(pattern string) string {
	p.t.Helper()
	re, limit := regexp.MustCompile(pattern), testdeadline.Context(p.t, 30*time.Second)
	for {
		p.mu.Lock()
		text := p.said.String()
		if at := re.FindStringIndex(text); at != nil {
			p.said.Reset()
			p.said.WriteString(text[at[1]:])
			p.mu.Unlock()
			return text[at[0]:at[1]]
		}
		p.mu.Unlock()
		select {
		case <-p.heard:
		case <-limit.Done():
			p.t.Fatalf("the terminal does not show %s, but %q", pattern, text)
		}
	}
}

// Start starts a command in a session of its own with this terminal, and drops the output so far.
func (p *Terminal) Start(cmd *exec.Cmd) {
	p.t.Helper()
	p.mu.Lock()
	p.said.Reset()
	p.mu.Unlock()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// CheckExit waits for a command, and checks its exit code and that the terminal has its former settings.
func (p *Terminal) CheckExit(cmd *exec.Cmd, code int, before unix.Termios) {
	p.t.Helper()
	_ = cmd.Wait() // the exit code is checked
	if got := cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	if diff := cmp.Diff(before, p.Modes()); diff != "" {
		p.t.Errorf("the terminal is not as it was: %s", diff)
	}
}
