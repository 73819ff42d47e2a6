package pace

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// On a usual host the kernel gives a process a page in a microsecond. An emulated host takes 20 to 40.
const (
	usualPage    = 2 * time.Microsecond
	mostSlowness = 20
	pages        = 256
	tries        = 3
)

// Slowness is this host's slowness compared to a usual one, from 1 to 20. Deadlines of work with an unknown pace are
// multiplied by it: emulated hosts, as in `make hosts`, are up to 20 times slower.
var Slowness = sync.OnceValue(func() float64 {
	best := time.Duration(0)
	for range tries {
		took, err := touch()
		if err != nil {
			return 1
		}
		if best == 0 || took < best {
			best = took
		}
	}
	return slowness(best)
})

// Stretch returns the time on this host for work that takes usual on a usual one.
func Stretch(usual time.Duration) time.Duration { return time.Duration(float64(usual) * Slowness()) }

// touch measures how long the kernel takes to give this process its pages.
func touch() (time.Duration, error) {
	size := os.Getpagesize()
	began := time.Now()
	memory, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	for i := 0; i < len(memory); i += size {
		memory[i] = 1
	}
	took := time.Since(began)
	return took, unix.Munmap(memory)
}

// slowness returns the slowness of a host where a process gets its pages in that time.
func slowness(took time.Duration) float64 {
	return min(max(1, float64(took)/float64(pages*usualPage)), mostSlowness)
}
