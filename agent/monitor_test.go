package agent

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestCalmMonitor: the monitor wakes up more rarely while system calls block. On a busy host it may wake up rarely even
// before; then the test repeats the measurement.
func TestCalmMonitor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var before, after int
	for range 20 {
		before += wakeups(t)
		if err := calmMonitor(monitorSlack, max(processors, runtime.NumCPU())); err != nil {
			t.Fatal(err)
		}
		after += wakeups(t)
		if excite(t) == 0 {
			t.Fatal("no thread has slack")
		}
		if 2*after < before {
			return
		}
	}
	t.Errorf("%d wake-ups of the monitor, and %d before", after, before)
}

// excite resets the slack of the monitor and of threads that it has started, and returns their number.
func excite(t *testing.T) (calm int) {
	t.Helper()
	for _, id := range tasks(t) {
		at := fmt.Sprintf("/proc/%d/timerslack_ns", id)
		slack, err := os.ReadFile(at)
		if err == nil && strings.TrimSpace(string(slack)) == strconv.FormatInt(monitorSlack.Nanoseconds(), 10) {
			calm++
			if err := os.WriteFile(at, []byte("0"), 0); err != nil { // reset
				t.Error(err)
			}
		}
	}
	return calm
}

// wakeups returns the number of the monitor's wake-ups while another thread makes continuous system calls.
func wakeups(t *testing.T) int {
	t.Helper()
	f, err := os.Open("/dev/urandom")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := switches(t)
	buf := make([]byte, 1<<16)
	for range 500 {
		if _, err := syscall.Read(int(f.Fd()), buf); err != nil {
			t.Fatal(err)
		}
	}
	return switches(t) - before
}

// switches returns the number of waits of the monitor, which is the runtime's second thread.
func switches(t *testing.T) (n int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tasks(t)[1]))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// tasks returns the ids of this process's threads, in order.
func tasks(t *testing.T) (ids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
