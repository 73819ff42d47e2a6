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

// The Go runtime's monitor checks every 20 µs, while any goroutine runs, for a system call that blocks its processor.
// Under emulation each check costs as much as many system calls: they took half of the agent's time for a pod's start.
// monitorSlack delays the checks. Until a check, a blocking system call stops the rest of the agent. So the agent
// avoids such calls: the runtime's poller and signals wait for the channel's port and the processes' ends. With one
// processor, goroutines switch without waking threads, which took a quarter of an exec.
const (
	monitorSlack = 5 * time.Millisecond
	processors   = 1
)

// The forwarder's monitor has little to check: two threads block in the kernel forever, each with a processor, and the
// other goroutines have the rest. A larger slack is harmful: a thread started meanwhile inherits it, and sleeps for 3
// µs before it takes over the work of a blocked thread. With an hour of slack, one pod in some 500 never received its
// session, and its container could not be created.
const (
	forwarderSlack      = 200 * time.Millisecond
	forwarderProcessors = 4
)

// calmMonitor delays the checks of the runtime's monitor and sets the number of processors. The monitor is the
// runtime's second thread. Threads that it starts inherit its slack, which delays their sleeps; that does not matter to
// the agent.
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
		return nil // an unknown runtime
	}
	slices.Sort(threads)
	slack := strconv.FormatInt(late.Nanoseconds(), 10)
	if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(threads[1]), "timerslack_ns"), []byte(slack), 0); err != nil {
		return fmt.Errorf("slow down the Go runtime's monitor: %w", err)
	}
	return nil
}
