package manager

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// verdictsFile is what a pod's probes have found, and which of its containers are
// ended for that: the next manager goes on from there. It need not survive a boot,
// for the VMs do not.
const verdictsFile = "probes.json"

// lastVerdicts are those that an earlier manager wrote down of the pod.
func (p *Pod) lastVerdicts(spec *corev1.Pod) map[string]probe.Verdict {
	if !pod.Remembers(spec) {
		return nil
	}
	var last map[string]probe.Verdict
	err := atomicfile.ReadJSON(filepath.Join(p.dir, verdictsFile), &last)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		// The probes find it out anew.
		p.m.o.Logger.Warn("what a pod's probes had found cannot be read", "pod", p.Key(), "error", err)
		return nil
	}
	return last
}

// keepVerdicts writes down what the pod's probes find, whenever that changes.
// The caller calls stop, which returns when nothing is written any more.
func (p *Pod) keepVerdicts(run *pod.Pod) (stop func()) {
	if !run.Remembers() {
		return func() {}
	}
	ended := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		var last map[string]probe.Verdict
		for {
			_, changed := run.Watch()
			if now := run.Verdicts(); !maps.Equal(now, last) {
				if err := atomicfile.WriteJSON(filepath.Join(p.dir, verdictsFile), now, 0o600, atomicfile.Volatile); err != nil {
					p.m.o.Logger.Warn("what a pod's probes have found could not be written down", "pod", p.Key(), "error", err)
				}
				last = now
			}
			select {
			case <-changed:
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		writer.Wait()
	}
}
