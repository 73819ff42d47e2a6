// Package check finds out whether this host can run pods. Each probe tries one thing like a pod's start. It reports
// the result, the reason and a remedy. It needs no engine and leaves nothing running.
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

// Status is the severity of a finding.
type Status string

// The statuses. With warnings pods run less well. With a Fail they cannot run.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is the result of one probe.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Reason is one line. Remedy is another one, empty without a remedy.
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
	// Detail is for diagnosis: the guest's console, QEMU's stderr.
	Detail string `json:"detail,omitempty"`
}

// Options select the probes.
type Options struct {
	Roots dirs.Roots
	// Fresh probes KVM again instead of using the result since the host's last boot.
	Fresh bool
	// CRI adds the probes of a node for `bulkhead cri`; it may be nil.
	CRI *CRI
}

// Probe is one question. Probes share their results, so they must run once each, in the order of Probes.
type Probe struct {
	Name string
	Ask  func(context.Context) Finding
}

// probeTimeout bounds one probe; the longest boots a guest under emulation.
const probeTimeout = time.Minute

// Probes returns the probes of this host.
func Probes(o Options) []Probe {
	m := &host{options: o}
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

// Run runs the probes in order and calls report with each finding. It returns whether pods can run, or ctx's error.
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

// host holds the results of the probes of the host; a nil or empty field was not found.
type host struct {
	options     Options
	stateOK     bool
	driver      *qemu.Driver
	bundle      *guest.Bundle
	accel       hypervisor.Accel
	redirection error // between taps
	// remedies for the network, the most basic one first
	networkRemedies []string
}

func ok(reason string) Finding { return Finding{Status: OK, Reason: reason} }
func warn(reason, remedy string) Finding {
	return Finding{Status: Warn, Reason: reason, Remedy: remedy}
}
func fail(reason, remedy string) Finding {
	return Finding{Status: Fail, Reason: reason, Remedy: remedy}
}
