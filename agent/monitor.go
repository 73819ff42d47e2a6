package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// The Go runtime's monitor looks every 20 µs, while anything runs, for a system call that
// has kept its processor too long. Under emulation each of these looks costs as
// much as many system calls do: they were half of what the agent took for a pod's start.
// monitorSlack is how much later it may look. Until then nothing else of the agent runs, so
// no call of it blocks in the kernel as a rule: the channel's port and the processes' ends
// are waited for by the runtime's poller and by signal. With one processor goroutines hand
// on to each other without waking threads, which took a quarter of an exec.
const (
	monitorSlack = 5 * time.Millisecond
	processors   = 1
)

// The forwarder's monitor has nothing to look after: two threads wait in the kernel for good,
// each with a processor, and what else there is has the others. It is not calmed for longer: a thread that it has started
// meanwhile inherits the slack, and sleeps for 3 µs before it takes what a thread that waits in the kernel has left to
// others. With an hour of slack one pod in some 500 never heard of its session, and its container could not be made.
const (
	forwarderSlack      = 200 * time.Millisecond
	forwarderProcessors = 4
)

// calmMonitor has the runtime's monitor look more rarely, and the process use so many
// processors. The monitor is the thread that the runtime makes first. A thread that it starts
// inherits its slack: what sleeps on that one may sleep so much longer, which nothing of the agent's minds.
func calmMonitor(late time.Duration, processors int) error {
	runtime.GOMAXPROCS(processors)
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("slow down the Go runtime's monitor: %w", err)
	}
	var threads []int
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("slow down the Go runtime's monitor: %w", err)
		}
		threads = append(threads, id)
	}
	if len(threads) < 2 {
		return nil // another runtime
	}
	slices.Sort(threads)
	slack := strconv.FormatInt(late.Nanoseconds(), 10)
	if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(threads[1]), "timerslack_ns"), []byte(slack), 0); err != nil {
		return fmt.Errorf("slow down the Go runtime's monitor: %w", err)
	}
	return nil
}

// collectAfterRehearsal collects the garbage of a rehearsal, so that no pod's start is
// held up by that.
func (a *Agent) collectAfterRehearsal() {
	a.mu.Lock()
	rehearsal := a.pod.Rehearsal
	a.mu.Unlock()
	if rehearsal {
		runtime.GC()
	}
}
