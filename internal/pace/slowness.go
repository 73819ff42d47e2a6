package pace

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel of a usual host gives a process a page in a microsecond. An emulated one takes 20 to 40.
const (
	usualPage    = 2 * time.Microsecond
	mostSlowness = 20
	pages        = 256
	tries        = 3
)

// Slowness is how many times slower than a usual host this one is, from 1 to 20. Deadlines of work whose pace is not
// known yet are multiplied by it: hosts that are emulated, as those of `make hosts`, are up to 20 times slower.
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

// Stretch is how long work may take on this host that may take so long on a usual one.
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

// slowness is that of a host on which a process gets its pages in that time.
func slowness(took time.Duration) float64 {
	return min(max(1, float64(took)/float64(pages*usualPage)), mostSlowness)
}
