// Package measure is what an engine tells whoever counts what it does.
package measure

import "time"

// Observer counts. Its methods are called at once, and from the midst of starts: they
// must not block.
type Observer interface {
	// Started tells of a pod's start that has ended, well or not.
	Started(s Start)
	// Stopped tells what the parts of a pod's stop took, of which some run at once.
	Stopped(parts []Phase)
	// Count tells that something has happened n times.
	Count(e Event, n int)
}

// VM is how a pod's VM was made.
type VM string

// The ways of making VMs.
const (
	Fork  VM = "fork"
	Clone VM = "clone"
	Boot  VM = "boot"
)

// Start is the start of a pod. It may have taken several VMs, of which it tells the last.
type Start struct {
	VM VM
	// NotForked is empty for a fork, and for a VM that was to be booted.
	NotForked NotForked
	Took      time.Duration
	// Phases are those that were done, in their order.
	Phases []Phase
	Failed bool
}

// Phase is one step of a start or a stop, and what it cost.
type Phase struct {
	Name string
	Took time.Duration
}

// NotForked is why a VM was no fork.
type NotForked string

// The reasons.
const (
	Off      NotForked = "off"       // the engine keeps no VM warm
	Asked    NotForked = "asked"     // the pod asks for a clone
	Retry    NotForked = "retry"     // another VM has failed the pod
	Disk     NotForked = "disk"      // the pod has a disk that no fork can have
	NoParent NotForked = "no-parent" // no VM of its kind is warm
	Broken   NotForked = "broken"    // the fork has failed
)

// Event is something that an engine counts.
type Event int

// What an engine counts. A template that is asked for is there (hit), or is built, or
// neither. A warm VM that is renewed has taken the place of another one. A leak is what a
// process that was killed has left behind.
const (
	TemplateHit Event = iota
	TemplateBuilt
	TemplateFailed
	WarmMade
	WarmRenewed
	WarmFailed
	WarmDropped
	LeakAdopted
	LeakRemoved
	LeakFailed
	Events // how many there are
)

// Nobody counts nothing.
type Nobody struct{}

// Started implements Observer.
func (Nobody) Started(Start) {}

// Stopped implements Observer.
func (Nobody) Stopped([]Phase) {}

// Count implements Observer.
func (Nobody) Count(Event, int) {}
