package layer

import (
	"errors"
	"fmt"
)

// ErrHostile is returned for a layer that breaks a limit or the rules of its format.
var ErrHostile = errors.New("layer refused")

// Limits bound the cost of the layers of one image, whatever they claim.
type Limits struct {
	// Content is the most bytes of all files in all layers together, holes included.
	Content int64
	// Stream is the most uncompressed bytes of all layers.
	Stream int64
	// Entries is the most names in all layers.
	Entries int
	// Steps is the most names that may be looked up on the way to all entries: in paths, in the targets of their links,
	// and in directories that a whiteout empties.
	Steps int
	// Metadata is the most bytes of names, link targets and attributes. They are all held in memory.
	Metadata int64
}

// DefaultLimits allow every honest image: 64 GiB is the size of a disk slot, and Steps allows 64 for each of the most
// entries.
var DefaultLimits = Limits{Content: 64 << 30, Stream: 80 << 30, Entries: 2 << 20, Steps: 128 << 20, Metadata: 512 << 20}

const (
	maxName = 255  // of one component, as Linux has it
	maxPath = 4096 // of a path and of a symbolic link's target
	maxHops = 255  // symbolic links followed in one path, as in a chroot of containerd
)

// entryCost is about the memory that an entry takes beside its strings.
const entryCost = 512

type budget struct {
	limits  Limits
	content int64
	entries int
	steps   int
	meta    int64
}

// step counts n names that are looked up.
func (b *budget) step(n int) error {
	if n > b.limits.Steps-b.steps {
		return fmt.Errorf("%w: more than %d steps through paths and links", ErrHostile, b.limits.Steps)
	}
	b.steps += n
	return nil
}

func (b *budget) entry(metadata int64) error {
	b.entries++
	b.meta += metadata
	switch {
	case b.entries > b.limits.Entries:
		return fmt.Errorf("%w: more than %d entries", ErrHostile, b.limits.Entries)
	case b.meta > b.limits.Metadata:
		return fmt.Errorf("%w: more than %d bytes of names and attributes", ErrHostile, b.limits.Metadata)
	}
	return nil
}

func (b *budget) file(size int64) error {
	if size < 0 || size > b.limits.Content-b.content {
		return fmt.Errorf("%w: files of more than %d bytes", ErrHostile, b.limits.Content)
	}
	b.content += size
	return nil
}
