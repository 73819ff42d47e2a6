package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// checkPods checks that every expected pod answers, that no other pods exist, and that all logs are complete.
func (s *soak) checkPods(t *testing.T) {
	t.Helper()
	s.must(t, "", "reap")
	for name := range s.pods {
		var a *command
		for end := time.Now().Add(testdeadline.For(90 * time.Second)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if a = s.run(t, "", "exec", name, "--", "sh", "-c", "echo $((6*7)); ls /shared >/dev/null"); a.out.String() == "42\n" {
				break
			}
		}
		if a.out.String() != "42\n" || a.ProcessState.ExitCode() != 0 {
			t.Errorf("pod %s does not answer: %v\n%s", name, a, s.must(t, "", "describe", name))
		}
	}
	for _, p := range s.settled(t) {
		if s.pods[p.Name] == nil {
			t.Errorf("unexpected pod: %+v", p)
			continue
		}
		logs, err := filepath.Glob(filepath.Join(s.roots().Data, "pods", p.UID, "logs/c/*.log"))
		if err != nil || len(logs) == 0 {
			t.Errorf("pod %s has the logs %q: %v", p.Name, logs, err)
		}
		for _, path := range logs {
			checkCounting(t, readLog(t, path))
		}
	}
}

// settled waits until no unexpected pod exists, or a timeout, and returns the pods. An engine ends the pods of
// disconnected clients.
func (s *soak) settled(t *testing.T) (pods []api.Pod) {
	t.Helper()
	for end := time.Now().Add(testdeadline.For(time.Minute)); ; time.Sleep(200 * time.Millisecond) {
		pods = nil
		if err := json.Unmarshal([]byte(s.must(t, "", "ps", "-o", "json")), &pods); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(pods, func(p api.Pod) bool { return s.pods[p.Name] == nil }) || time.Now().After(end) {
			return pods
		}
	}
}

// readLog reads a container's output from a log file in the CRI's format.
func readLog(t *testing.T, path string) (lines []string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		switch {
		case !strings.HasSuffix(line, "\n"):
			return lines // it is being written
		case len(fields) != 4:
			t.Errorf("%s: not a line of the CRI's format: %q", path, line)
		default:
			lines = append(lines, fields[3])
		}
	}
	return lines
}

func (s *soak) removeAll(t *testing.T) {
	t.Helper()
	for _, name := range strings.Fields(s.must(t, "", "ps", "-q")) {
		s.must(t, "", "rm", "-f", name)
	}
}

// slowReader reads the output of a command slowly, and checks that it is complete. The command is an exec, because
// logs are bounded and a slow reader misses parts of them.
func (s *soak) slowReader(ctx context.Context) {
	size := 16 << 20
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		size = 1 << 30
	}
	const name = "slow"
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		var got int
		var err error
		if c := s.run(s.t, pod(name, "Always", "exec sleep 100000"), "run", "-d", "-q", "-"); c.ProcessState.ExitCode() != 0 {
			err = errors.New(c.String())
		} else {
			got, err = s.readSlowly(ctx, name, size)
		}
		why := s.disturbed(began)
		s.count("slow reader", err != nil)
		switch {
		case err != nil && ctx.Err() == nil && why == "":
			s.t.Errorf("a slow reader gets %d of %d bytes: %v", got, size, err)
		case err == nil && got != size:
			s.t.Errorf("a slow reader gets %d of %d bytes", got, size)
		}
		(&soaker{soak: s}).gone(name)
	}
}

func (s *soak) readSlowly(ctx context.Context, name string, size int) (got int, err error) {
	const chunk = "0123456789abcdef"
	c := s.command(ctx, "exec", name, "--", "sh", "-c", fmt.Sprintf("yes %s | head -c %d", chunk, size))
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	line, in := chunk+"\n", bufio.NewReader(out)
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		for _, b := range buf[:n] {
			if b != line[got%len(line)] {
				s.t.Errorf("byte %d for a slow reader is %q, want %q", got, b, line[got%len(line)])
				_ = c.Process.Kill()
			}
			got++
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return got, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			_ = c.Process.Kill()
		}
	}
	if err := c.Wait(); err != nil {
		return got, fmt.Errorf("%w: %s", err, strconv.Quote(c.err.String()))
	}
	return got, nil
}
