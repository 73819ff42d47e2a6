package site

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// VM has the processes of one pod.
type VM struct {
	Sandbox string // id
	Shim    procs.Process
	QEMU    procs.Process
}

// VMs returns the processes of the site's pods, and of an older build's pool, by sandbox id.
func (s *Site) VMs() (map[string]VM, error) {
	all, err := procs.Below(procs.Root())
	if err != nil {
		return nil, err
	}
	return s.find(all).pods, nil
}

// Parents returns the warm parents of the site, which pods' VMs are forked from.
func (s *Site) Parents() ([]procs.Process, error) {
	all, err := procs.Below(procs.Root())
	if err != nil {
		return nil, err
	}
	return s.find(all).parents, nil
}

// found has the processes below a site's engine.
type found struct {
	pods    map[string]VM // by sandbox id
	parents []procs.Process
}

func (s *Site) find(all []procs.Process) found {
	return find(all, s.isEngine, procs.Args, func(pid int) bool { return procs.HasThread(pid, WarmThread) })
}

// WarmThread is the name of a thread that parents have and forks lack.
const WarmThread = "warm"

// find finds the shims below the engine and each shim's VM. The VM is a child of the shim. A fork is a child of the
// engine, like its parent, and has the sandbox's name.
func find(all []procs.Process, engine func(procs.Process) bool, args func(pid int) []string, warm func(pid int) bool) found {
	own := map[int]bool{}
	f := found{pods: map[string]VM{}}
	var shims []VM
	below := map[int]procs.Process{}    // VMs by their parent process
	named := map[string]procs.Process{} // and by name
	for _, p := range all {             // parents come first
		own[p.PID] = own[p.Parent] || engine(p)
		if !own[p.Parent] || p.Zombie {
			continue
		}
		line := args(p.PID)
		name := vmName(line)
		switch {
		case len(line) == 3 && filepath.Base(line[0]) == "bulkhead-shim":
			shims = append(shims, VM{Sandbox: line[2], Shim: p})
		case name == "":
		case warm(p.PID):
			f.parents = append(f.parents, p)
		default:
			below[p.Parent], named[name] = p, p
		}
	}
	for _, m := range shims {
		var ok bool
		if m.QEMU, ok = below[m.Shim.PID]; !ok {
			m.QEMU, ok = named[qemu.ProcessName(layout.VMName(m.Sandbox))]
		}
		if ok {
			f.pods[m.Sandbox] = m
		}
	}
	return f
}

// vmName returns the name of a VM from the command line of its process, empty for another process.
func vmName(args []string) string {
	if i := slices.Index(args, "-name"); i > 0 && i+1 < len(args) && strings.HasPrefix(filepath.Base(args[0]), "qemu-system-") {
		return args[i+1]
	}
	return ""
}
