package manager

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// waits sets the options of a pod that begins only when its Job has room.
func (m *Manager) waits(p *Pod, rec Record, o *pod.Options) {
	if _, limited := podspec.Parallelism(rec.Pod); !limited || !m.o.Jobs {
		return
	}
	if !rec.Begun {
		o.Turn = func() pod.Turn { return m.turn(p) }
	}
	if limit, limited := podspec.JobDeadline(rec.Pod); limited {
		o.Deadline = rec.Since.Add(limit)
	}
}

// turn returns whether the pod may begin, and saves a yes. It may begin if the Job's parallelism allows for one more
// pod beside those that run and those with an earlier turn.
func (m *Manager) turn(p *Pod) pod.Turn {
	m.turns.Lock()
	defer m.turns.Unlock()
	others := 0
	for _, other := range m.job(p) {
		if rec := other.record(); rec.Ended == nil && (rec.Begun || before(other, p)) {
			others++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	limit, _ := podspec.Parallelism(p.rec.Pod)
	switch {
	case p.rec.JobFailed:
		return pod.TurnNever
	case p.ending.Load() || others >= limit:
		return pod.TurnLater
	}
	p.rec.Begun = true
	if err := p.save(); err != nil {
		m.o.Logger.Warn("cannot save that a pod begins", "pod", p.Key(), "error", err)
	}
	return pod.TurnNow
}

// failJob stops the other pods of the Job from beginning if this pod had begun and has failed or was stopped, because
// the Job can no longer succeed. The caller saves this pod's end afterwards, so that a crash between the two loses
// nothing.
func (m *Manager) failJob(p *Pod) {
	status := p.supervised().Status()
	rec := p.record()
	if !rec.Begun || !podstatus.Ended(&status) || status.Phase == corev1.PodSucceeded && !rec.Stopping {
		return
	}
	m.turns.Lock()
	defer m.turns.Unlock()
	for _, other := range m.job(p) {
		other.mu.Lock()
		if !other.rec.Begun && other.rec.Ended == nil {
			other.rec.JobFailed = true
			if err := other.save(); err != nil {
				m.o.Logger.Warn("cannot save that a pod's Job has failed", "pod", other.Key(), "error", err)
			}
		}
		other.mu.Unlock()
	}
}

// wakeJob makes the pods of the Job ask for their turns again.
func (m *Manager) wakeJob(p *Pod) {
	for _, other := range m.job(p) {
		other.supervised().Changed()
	}
}

// job returns the other pods of the pod's Job, none if the Job has no limit for concurrent pods.
func (m *Manager) job(p *Pod) (list []*Pod) {
	if _, limited := podspec.Parallelism(p.Original()); !limited || !m.o.Jobs {
		return nil
	}
	for _, other := range m.All() {
		if other != p && podspec.Owner(other.Original()) == podspec.Owner(p.Original()) {
			list = append(list, other)
		}
	}
	return list
}

// before reports whether a's turn is before b's in the same Job, by the numbers in their names.
func before(a, b *Pod) bool {
	return cmp.Or(cmp.Compare(len(a.Name()), len(b.Name())), strings.Compare(a.Name(), b.Name())) < 0
}

// record returns the current record.
func (p *Pod) record() Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec
}
