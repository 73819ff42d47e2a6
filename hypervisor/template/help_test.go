package template_test

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"testing"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// waitGone waits for the end of a process that is not a child of the test and has closed its sockets already.
func waitGone(ctx context.Context, t *testing.T, pid string) {
	t.Helper()
	for {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("process %s still runs", pid)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
