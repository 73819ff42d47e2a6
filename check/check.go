// Package check finds out what this machine can do for pods: each probe tries
// one thing the way a pod's start does, and says what it found, why, and what
// would make it better. It needs no engine and leaves nothing running.
package check

import (
	"context"
	"time"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/pace"
)

// Status is how bad a finding is.
type Status string

// The statuses. Pods run, if less well, where there are warnings; they cannot
// run where there is a Fail.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is what one probe found.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Reason is one line, Remedy another, empty when there is nothing to do.
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
	// Detail is for a closer look: the guest's console, QEMU's stderr.
	Detail string `json:"detail,omitempty"`
}

// Options say what is checked.
type Options struct {
	Roots dirs.Roots
	// Fresh probes KVM again instead of believing what was found since the
	// host's last boot.
	Fresh bool
	// CRI asks what a node needs for `bulkhead cri` as well; nil does not.
	CRI *CRI
}

// Probe asks one question. Probes share what they have found: each is asked
// once, in the order of Probes.
type Probe struct {
	Name string
	Ask  func(context.Context) Finding
}

// probeTimeout bounds one probe; the longest boots a guest under emulation.
const probeTimeout = time.Minute

// Probes are the questions about this machine.
func Probes(o Options) []Probe {
	m := &machine{options: o}
	probes := []Probe{
		{"directories", m.directories},
		{"disk", m.disk},
		{"memory", m.memory},
		{"cgroups", m.cgroups},
		{"Landlock", m.landlock},
		{"KSM", m.merging},
		{"shares", m.shares},
		{"programs", m.programs},
		{"QEMU", m.qemu},
		{"guest", m.guest},
		{"accelerator", m.accelerator},
		{"boot", m.boot},
		{"forks", m.forks},
	}
	if o.CRI != nil {
		probes = append(probes, m.criProbes()...)
	}
	if o.CRI != nil && o.CRI.CNIConf != "" {
		return probes // pods have no other network
	}
	return append(probes,
		Probe{"user namespaces", m.namespaces}, Probe{"pasta", m.pasta}, Probe{"/dev/net/tun", m.tun}, Probe{"network", m.network})
}

// Run asks the probes in order and gives each finding to report. It returns
// whether pods can run, and ctx's error if it ended before.
func Run(ctx context.Context, probes []Probe, report func(Finding)) (bool, error) {
	able := true
	for _, p := range probes {
		probeCtx, cancel := context.WithTimeout(ctx, pace.Stretch(probeTimeout))
		f := p.Ask(probeCtx)
		cancel()
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		f.Check = p.Name
		able = able && f.Status != Fail
		report(f)
	}
	return able, nil
}

// machine is what the probes know of the host; a nil or empty field is what
// was not found.
type machine struct {
	options     Options
	stateOK     bool
	driver      *qemu.Driver
	bundle      *guest.Bundle
	accel       hypervisor.Accel
	redirection error // between taps
	// remedies of what the network needs, the most basic first.
	networkRemedies []string
}

func ok(reason string) Finding { return Finding{Status: OK, Reason: reason} }
func warn(reason, remedy string) Finding {
	return Finding{Status: Warn, Reason: reason, Remedy: remedy}
}
func fail(reason, remedy string) Finding {
	return Finding{Status: Fail, Reason: reason, Remedy: remedy}
}
