package manager

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// The next manager continues from these files. They need not survive a reboot, because the VMs do not.
const (
	// verdictsFile has the results of a pod's probes, and the containers that are being stopped for them.
	verdictsFile = "probes.json"
	// transitionsFile has the times of the last changes of the pod's conditions.
	transitionsFile = "conditions.json"
)

// transitions are the conditions of one run of a pod.
type transitions struct {
	Since      time.Time             `json:"since"` // of the run
	Conditions []corev1.PodCondition `json:"conditions"`
}

// notes are a pod's files for the next manager.
type notes struct {
	dir, pod string
	log      *slog.Logger
}

func notesOf(p *Pod) notes { return notes{p.dir, p.Key(), p.m.o.Logger} }

// lastVerdicts returns the verdicts that an earlier manager saved.
func (n notes) lastVerdicts(spec *corev1.Pod) (last map[string]probe.Verdict) {
	if !pod.Remembers(spec) || !n.readSaved(verdictsFile, &last) {
		return nil
	}
	return last
}

// lastConditions returns the conditions that an earlier manager saved for the same run.
func (n notes) lastConditions(since time.Time) []corev1.PodCondition {
	var last transitions
	if !n.readSaved(transitionsFile, &last) || !last.Since.Equal(since) {
		return nil
	}
	return last.Conditions
}

// readSaved reads one of the files. A file that cannot be read counts as absent.
func (n notes) readSaved(file string, into any) (found bool) {
	err := atomicfile.ReadJSON(filepath.Join(n.dir, file), into)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.log.Warn("cannot read the notes of an earlier engine on a pod", "pod", n.pod, "error", err)
	}
	return err == nil
}

// remember saves the results of the pod's probes and the changes of its conditions for the next manager. The caller
// calls stop, which returns after the last write.
func (n notes) remember(run *pod.Pod, since time.Time) (stop func()) {
	ended := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		var verdicts map[string]probe.Verdict
		var before []corev1.PodCondition
		for {
			status, changed := run.Watch()
			if now := run.Verdicts(); run.Remembers() && !maps.Equal(now, verdicts) {
				n.write(verdictsFile, now)
				verdicts = now
			}
			select {
			case <-run.Observed():
				if now := withoutMessages(status.Conditions); !reflect.DeepEqual(now, before) {
					n.write(transitionsFile, transitions{since, now})
					before = now
				}
			default: // the pod has not been observed yet
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

// withoutMessages returns conditions without their messages, which may change often.
func withoutMessages(conditions []corev1.PodCondition) (out []corev1.PodCondition) {
	for _, c := range conditions {
		out = append(out, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
	}
	return out
}

func (n notes) write(file string, what any) {
	if err := atomicfile.WriteJSON(filepath.Join(n.dir, file), what, 0o600, atomicfile.Volatile); err != nil {
		n.log.Warn("cannot write notes on a pod for the next engine", "pod", n.pod, "error", err)
	}
}
