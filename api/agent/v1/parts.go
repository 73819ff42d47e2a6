package agentv1

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// The parts of calls that a guest tells of to a host that traces them: those of Configure, in
// their order, and those of Create and Exec.
const (
	PartReseed   = "reseed"
	PartClock    = "set the clock"
	PartHostname = "set the host name"
	PartFiles    = "write the pod's files"
	PartShm      = "mount /dev/shm"
	PartNetwork  = "set up the network"
	PartCards    = "set up the further interfaces"
	PartSysctls  = "set sysctls"
	PartLimits   = "limit the pod"
	PartScratch  = "limit the scratch disk"

	PartRoot = "mount the root"           // of a container: its image and its own layer
	PartSpec = "adjust the specification" // read, made the guest's, and written for crun
	PartCrun = "run crun"                 // until the process is there
)

var partNames = []string{
	PartReseed, PartClock, PartHostname, PartFiles, PartShm, PartNetwork, PartCards, PartSysctls, PartLimits, PartScratch,
	PartRoot, PartSpec, PartCrun,
}

// Part is what a part of a call took in the guest.
type Part struct {
	Name string `json:"name"`
	Usec int64  `json:"usec"`
}

// stepPrefix precedes the name of a call in that of a step.
const stepPrefix = "agent "

// KnownStep says that a host that traces hears of steps and parts by that name.
func KnownStep(name string) bool {
	op, is := strings.CutPrefix(name, stepPrefix)
	return is && traced[Op(op)] || slices.Contains(partNames, name)
}

// traced are the calls that steps are named after.
var traced = map[Op]bool{
	OpConfigure: true, OpMount: true, OpUnmount: true, OpFlush: true, OpCreate: true, OpStart: true, OpExec: true,
	OpSignal: true, OpDelete: true, OpPause: true, OpResume: true, OpUpdate: true, OpFiles: true,
}

// step is what a call took, by the host's clock, and what the guest says of it; none of a call
// whose time says nothing.
func step(op Op, began time.Time, parts []Part) []timeline.Step {
	now := time.Now()
	s := timeline.Step{Name: stepPrefix + string(op), Begin: began, Took: now.Sub(began)}
	for _, p := range parts[:min(len(parts), timeline.MaxParts)] {
		s.Parts = append(s.Parts, timeline.Part{Name: p.Name, Took: time.Duration(p.Usec) * time.Microsecond})
	}
	return timeline.Within([]timeline.Step{s}, began, now, KnownStep)
}

// partList is what a guest keeps of a call that is traced.
type partList struct {
	mu  sync.Mutex
	all []Part
}

type partsKey struct{}

func (l *partList) list() []Part {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// Begin begins a part of the call that a guest's handler has ctx of. It ends when end is called.
// Parts do not overlap.
func Begin(ctx context.Context, name string) (end func()) {
	l, _ := ctx.Value(partsKey{}).(*partList)
	if l == nil {
		return func() {}
	}
	began := time.Now()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, Part{name, time.Since(began).Microseconds()})
	}
}
