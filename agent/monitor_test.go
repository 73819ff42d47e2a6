package agent

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestCalmMonitor: the monitor wakes up more rarely while system calls block, and no
// other thread has its slack.
func TestCalmMonitor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	before := wakeups(t)
	if err := calmMonitor(); err != nil {
		t.Fatal(err)
	}
	after := wakeups(t)
	if 2*after > before {
		t.Errorf("%d wake-ups, and %d before", after, before)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	calm := 0
	for _, e := range threads {
		slack, err := os.ReadFile("/proc/" + e.Name() + "/timerslack_ns")
		if err == nil && strings.TrimSpace(string(slack)) == strconv.FormatInt(monitorSlack.Nanoseconds(), 10) {
			calm++
			if err := os.WriteFile("/proc/"+e.Name()+"/timerslack_ns", []byte("0"), 0); err != nil { // as it was
				t.Error(err)
			}
		}
	}
	if calm != 1 {
		t.Errorf("%d threads of %d have slack", calm, len(threads))
	}
}

// wakeups is how often this process's threads wait for a moment while one of them makes
// system calls without a pause.
func wakeups(t *testing.T) (n int) {
	t.Helper()
	f, err := os.Open("/dev/urandom")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n = -switches(t)
	buf := make([]byte, 1<<16)
	for range 500 {
		if _, err := syscall.Read(int(f.Fd()), buf); err != nil {
			t.Fatal(err)
		}
	}
	return n + switches(t)
}

func switches(t *testing.T) (all int) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range threads {
		status, err := os.ReadFile("/proc/self/task/" + e.Name() + "/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		var n int
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		all += n
	}
	return all
}
