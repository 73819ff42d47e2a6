package hypervisortest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// Patience bounds a wait for an emulated guest that no context can end.
func Patience() time.Duration { return testdeadline.For(testdeadline.Boot(true)) }

// Within returns a context for requests to an emulated guest.
func Within(t testing.TB) context.Context {
	t.Helper()
	return testdeadline.Context(t, testdeadline.Boot(true))
}

// Ask sends one command to the tests' guest over a fresh connection of the channel, and returns its one-line answer. A
// guest that is not up yet answers once it is.
func Ask(t testing.TB, v hypervisor.VM, format string, args ...any) string {
	t.Helper()
	answer, err := TryAsk(v, format, args...)
	if err != nil {
		err, console := v.Explain("ask", err), ""
		if e := (*hypervisor.Error)(nil); errors.As(err, &e) {
			console = e.Console
		}
		t.Fatalf("ask the guest %q: %v; its console: %s", fmt.Sprintf(format, args...), err, console)
	}
	return answer
}

// TryAsk is like Ask for a guest that may not answer.
func TryAsk(v hypervisor.VM, format string, args ...any) (string, error) {
	conn, err := v.Connect(context.Background())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(Patience()))
	if _, err := fmt.Fprintf(conn, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// Dir creates a directory with a path short enough for sockets. It is removed when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	own, err := os.MkdirTemp("", "vm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(own) })
	// The parent belongs to the test alone: see package internal/podsock.
	dir := filepath.Join(own, "vm")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
