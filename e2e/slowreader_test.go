package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestSlowReader: a client that runs a pod in the foreground and reads late gets all its output, several times the
// size of a log. The container waits for the client.
func TestSlowReader(t *testing.T) {
	testturn.SkipUnless(t, 2, 3)
	t.Parallel()
	w := newWorld(t)
	size := 128 << 20
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		size = 1 << 30
	}
	line := strings.Repeat("0123456789abcdef", 250) + "\n"
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(10*time.Minute))
	defer cancel()
	c := w.command(ctx, "run", "--rm", "-q", image, "sh", "-c", fmt.Sprintf("yes %s | head -c %d", strings.TrimSpace(line), size))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	got, late := 0, false
	buf := make([]byte, 1<<20)
	for {
		n, err := in.Read(buf)
		for _, b := range buf[:n] {
			if b != line[got%len(line)] {
				cancel()
				t.Fatalf("byte %d is %q, want %q", got, b, line[got%len(line)])
			}
			got++
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !late { // until the container has to wait
			time.Sleep(testdeadline.For(16 * time.Second))
			late = true
		}
	}
	if err := c.Wait(); err != nil || got != size {
		t.Errorf("%d of %d bytes: %v: %s", got, size, err, c.err.String())
	}
	w.end(t)
}
