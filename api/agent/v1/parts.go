package agentv1

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// The parts of traced calls in a guest, first for Configure, in order, then for Create and Exec.
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

	PartRoot   = "mount the root"           // of a container: its image and its writable layer
	PartSpec   = "adjust the specification" // read, adapt and write it for crun
	PartCrun   = "run crun"                 // until the process exists
	PartLaunch = "run the launcher"         // instead of crun
)

var partNames = []string{
	PartReseed, PartClock, PartHostname, PartFiles, PartShm, PartNetwork, PartCards, PartSysctls, PartLimits, PartScratch,
	PartRoot, PartSpec, PartCrun, PartLaunch,
}

// Part is a part of a call in the guest, and its duration.
type Part struct {
	Name string `json:"name"`
	Usec int64  `json:"usec"`
}

// stepPrefix precedes a call's name in the name of its step.
const stepPrefix = "agent "

// KnownStep reports whether traces contain steps or parts with that name.
func KnownStep(name string) bool {
	op, is := strings.CutPrefix(name, stepPrefix)
	return is && traced[Op(op)] || slices.Contains(partNames, name)
}

// traced are the calls with steps.
var traced = map[Op]bool{
	OpConfigure: true, OpMount: true, OpUnmount: true, OpFlush: true, OpCreate: true, OpStart: true, OpExec: true,
	OpSignal: true, OpDelete: true, OpPause: true, OpResume: true, OpUpdate: true, OpFiles: true, OpNetwork: true,
}

// step returns the step of a call, with the duration on the host's clock and the guest's parts. It returns none for
// calls with meaningless durations.
func step(op Op, began time.Time, parts []Part) []timeline.Step {
	now := time.Now()
	s := timeline.Step{Name: stepPrefix + string(op), Begin: began, Took: now.Sub(began)}
	for _, p := range parts[:min(len(parts), timeline.MaxParts)] {
		s.Parts = append(s.Parts, timeline.Part{Name: p.Name, Took: time.Duration(p.Usec) * time.Microsecond})
	}
	return timeline.Within([]timeline.Step{s}, began, now, KnownStep)
}

// partList collects the parts of a traced call in the guest.
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

// Begin starts a part of the call with a guest handler's ctx. The caller must call end. Parts must not overlap.
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
