package manager

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// waits makes the options of a pod that begins when its Job has room for it.
func (p *Pod) waits(rec Record, o *pod.Options) {
	if _, limited := podspec.Parallelism(rec.Pod); !limited || !p.m.o.Jobs {
		return
	}
	if !rec.Begun {
		o.Turn = p.turn
	}
	if limit, limited := podspec.JobDeadline(rec.Pod); limited {
		o.Deadline = rec.Since.Add(limit)
	}
}

// turn tells whether the pod may begin, and writes it down if it may: no more pods
// of its Job than run at once have begun and not ended, nor wait before it.
func (p *Pod) turn() pod.Turn {
	p.m.turns.Lock()
	defer p.m.turns.Unlock()
	others := 0
	for _, other := range p.job() {
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
		p.m.o.Logger.Warn("cannot save that a pod begins", "pod", p.Key(), "error", err)
	}
	return pod.TurnNow
}

// failJob has no pod of the Job begin any more if this one, which had begun, has
// failed or was stopped: the Job cannot succeed. It is done before the end of this
// one is written down, so that a crash between the two loses nothing.
func (p *Pod) failJob() {
	status := p.supervised().Status()
	rec := p.record()
	if !rec.Begun || !podstatus.Ended(&status) || status.Phase == corev1.PodSucceeded && !rec.Stopping {
		return
	}
	p.m.turns.Lock()
	defer p.m.turns.Unlock()
	for _, other := range p.job() {
		other.mu.Lock()
		if !other.rec.Begun && other.rec.Ended == nil {
			other.rec.JobFailed = true
			if err := other.save(); err != nil {
				p.m.o.Logger.Warn("cannot save that a pod's Job has failed", "pod", other.Key(), "error", err)
			}
		}
		other.mu.Unlock()
	}
}

// passTurn has the pods of the Job ask for their turns again.
func (p *Pod) passTurn() {
	for _, other := range p.job() {
		other.supervised().Changed()
	}
}

// job are the other pods of the pod's Job, none for one that does not limit how
// many run at once.
func (p *Pod) job() (list []*Pod) {
	if _, limited := podspec.Parallelism(p.Given()); !limited || !p.m.o.Jobs {
		return nil
	}
	for _, other := range p.m.All() {
		if other != p && podspec.Owner(other.Given()) == podspec.Owner(p.Given()) {
			list = append(list, other)
		}
	}
	return list
}

// before tells whether a's turn is before b's, of one Job: by the numbers in their
// names.
func before(a, b *Pod) bool {
	return cmp.Or(cmp.Compare(len(a.Name()), len(b.Name())), strings.Compare(a.Name(), b.Name())) < 0
}

// record is what is kept of the pod now.
func (p *Pod) record() Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec
}
