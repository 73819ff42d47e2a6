// Package measure defines the events that an engine reports for metrics.
package measure

import "time"

// Observer receives the engine's measurements. Its methods are called concurrently, also during starts, and must
// not block.
type Observer interface {
	// Started reports the end of a pod's start, successful or not.
	Started(s Start)
	// Stopped reports the durations of the parts of a pod's stop. Some parts run concurrently.
	Stopped(parts []Phase)
	// Count reports that an event has happened n times.
	Count(e Event, n int)
}

// VM is how a pod's VM was started.
type VM string

// The ways of starting VMs.
const (
	Fork  VM = "fork"
	Clone VM = "clone"
	Boot  VM = "boot"
)

// Start describes the start of a pod. If it took several VMs, it describes the last one.
type Start struct {
	VM VM
	// NotForked is empty for a fork and for a boot on request.
	NotForked NotForked
	Took      time.Duration
	// Phases are the completed phases, in order.
	Phases []Phase
	Failed bool
}

// Phase is one step of a start or a stop, and its duration.
type Phase struct {
	Name string
	Took time.Duration
}

// NotForked is the reason why a VM is not a fork.
type NotForked string

// The reasons.
const (
	Off      NotForked = "off"       // the engine keeps no parents
	Asked    NotForked = "asked"     // the pod asks for a clone
	Retry    NotForked = "retry"     // another VM failed in this start
	Disk     NotForked = "disk"      // the pod's disk cannot be a fork's
	NoParent NotForked = "no-parent" // there is no parent for the pod
	Broken   NotForked = "broken"    // the fork failed
)

// Event is an event that the engine counts.
type Event int

// The events. For each request, a template exists (hit), is built, or fails. A renewed parent has replaced another
// one. A leak is left by a killed process.
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
	Events // the number of events
)

// Discard ignores all measurements.
type Discard struct{}

// Started implements Observer.
func (Discard) Started(Start) {}

// Stopped implements Observer.
func (Discard) Stopped([]Phase) {}

// Count implements Observer.
func (Discard) Count(Event, int) {}
