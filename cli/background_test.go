package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// background is a command that runs beside the test.
type background struct {
	cmd    *exec.Cmd
	in     io.Writer
	mu     chan struct{} // held by the user of out
	out    bytes.Buffer
	heard  chan struct{}
	reader chan struct{} // closed when all is read
}

// start starts a command of the user.
func (u *user) start(t *testing.T, args ...string) *background {
	t.Helper()
	testgo.NeedTree()
	args = append(append(append([]string{}, u.prefix...), filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), "bulkhead")), args...)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	b := &background{
		cmd:    exec.CommandContext(ctx, args[0], args[1:]...),
		mu:     make(chan struct{}, 1),
		heard:  make(chan struct{}, 1),
		reader: make(chan struct{}),
	}
	b.cmd.Dir, b.cmd.Env = "/", u.env
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd.Stdout, b.cmd.Stderr = w, w
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		defer close(b.reader)
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			b.mu <- struct{}{}
			b.out.Write(buf[:n])
			<-b.mu
			select {
			case b.heard <- struct{}{}:
			default:
			}
			if err != nil {
				r.Close()
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = b.cmd.Wait()
		<-b.reader
	})
	return b
}

// expect waits for matching output, and returns the match and its groups.
func (b *background) expect(t *testing.T, pattern string) []string {
	t.Helper()
	re, limit := regexp.MustCompile(pattern), time.After(30*time.Second)
	for {
		b.mu <- struct{}{}
		text := b.out.String()
		<-b.mu
		if found := re.FindStringSubmatch(text); found != nil {
			return found
		}
		select {
		case <-b.heard:
		case <-limit:
			t.Fatalf("%v does not say %s, but %q", b.cmd.Args, pattern, text)
		}
	}
}

// signal sends a signal and checks the exit code.
func (b *background) signal(t *testing.T, sig syscall.Signal, code int) {
	t.Helper()
	if err := b.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = b.cmd.Wait()
	if got := b.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%v: exit code %d, want %d", b.cmd.Args, got, code)
	}
}
