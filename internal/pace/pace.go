// Package pace estimates how long work may take on this host, from earlier times and from the load of the processors.
package pace

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// remembered is the number of latest times that count.
const remembered = 8

// Pace stores how long one kind of work took. It is safe for concurrent use.
type Pace struct {
	mu     sync.Mutex
	recent []time.Duration // scaled to a host without load
	next   int
}

// Observe adds a time that was measured under a load.
func (p *Pace) Observe(took time.Duration, load float64) {
	took = time.Duration(float64(took) / load)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.recent) < remembered {
		p.recent = append(p.recent, took)
		return
	}
	p.recent[p.next] = took
	p.next = (p.next + 1) % remembered
}

// Expect returns the expected time of the work under a load, by the slowest of the latest times; 0 if there are none.
func (p *Pace) Expect(load float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var slowest time.Duration
	for _, took := range p.recent {
		slowest = max(slowest, took)
	}
	return time.Duration(float64(slowest) * load)
}

// Load returns the number of tasks that want each processor at this moment; at least 1, also if the kernel has no
// figure.
func Load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1
	}
	return load(string(data), runtime.NumCPU())
}

// load parses a line such as "0.20 0.18 0.12 3/80 11206": three tasks run or wait for a processor.
func load(line string, cpus int) float64 {
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return 1
	}
	tasks, _, _ := strings.Cut(fields[3], "/")
	running, err := strconv.ParseFloat(tasks, 64)
	if err != nil {
		return 1
	}
	return max(running/float64(cpus), 1)
}
