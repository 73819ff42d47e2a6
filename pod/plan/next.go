package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Wants reports whether c is to be started, now or when its turn comes.
func (s *State) Wants(c *Container) bool {
	if s.Running(c) {
		return false
	}
	if c.Outgoing() {
		return true // it was stopped for a restart
	}
	code, ended := s.outcome(c)
	switch c.Kind {
	case podspec.Sidecar:
		return true
	case podspec.Ephemeral:
		return !ended
	case podspec.Initial:
		if s.initialised() {
			return false
		}
		// Init containers run again in a new VM.
		if !ended || code == 0 && !s.hasInstance(c) {
			return true
		}
	case podspec.Regular:
		if !ended {
			return !s.spent()
		}
	}
	return s.restarted(c, code)
}

// finished reports whether containers after c, an init container or a sidecar, may start.
func (s *State) finished(c *Container) bool {
	if c.Kind == podspec.Sidecar {
		return s.Started(c)
	}
	code, ended := s.outcome(c)
	return ended && code == 0 && s.hasInstance(c)
}

// initialised reports whether all init containers have succeeded and all sidecars have started in this sandbox. The
// sandbox then stays initialised.
func (s *State) initialised() bool {
	inits := s.Of(podspec.Initial, podspec.Sidecar)
	if len(inits) == 0 || slices.ContainsFunc(s.Of(podspec.Regular), s.hasInstance) {
		return true
	}
	return !slices.ContainsFunc(inits, func(c *Container) bool { return !s.finished(c) })
}

// next returns the containers that must be started now, in order. A sidecar that ends during the initialisation is
// started again beside later init containers.
func (s *State) next() []*Container {
	var out []*Container
	if s.initialised() {
		out = s.Of(podspec.Sidecar, podspec.Regular)
	} else {
		inits := s.Of(podspec.Initial, podspec.Sidecar)
		for i, c := range inits {
			if s.finished(c) {
				continue
			}
			out = append(out, c)
			if !slices.ContainsFunc(inits[i+1:], s.hasInstance) {
				break
			}
		}
	}
	out = append(out, s.Of(podspec.Ephemeral)...)
	return slices.DeleteFunc(out, func(c *Container) bool { return !s.Wants(c) })
}

// over reports whether the pod is done: an init container has failed for good, or no regular container runs or will.
func (s *State) over() bool {
	if s.Exhausted() || slices.ContainsFunc(s.Of(podspec.Initial), s.failed) {
		return true
	}
	return !slices.ContainsFunc(s.Of(podspec.Regular), func(c *Container) bool { return s.Running(c) || s.Wants(c) })
}

// failed reports whether c has failed and is not started again.
func (s *State) failed(c *Container) bool {
	code, ended := s.outcome(c)
	return ended && code != 0 && !s.restarted(c, code)
}

// Exhausted reports whether a container of a Job's pod has failed and may not be retried. Then the pod's other containers are stopped.
func (s *State) Exhausted() bool {
	_, limited := podspec.BackoffLimit(s.Pod)
	return limited && slices.ContainsFunc(s.Of(podspec.Initial, podspec.Regular), func(c *Container) bool {
		return s.failed(c) && !c.Outgoing()
	})
}

// spent reports whether a pod that is never restarted has lost its VM. Containers that have not started never will.
func (s *State) spent() bool {
	if _, limited := podspec.BackoffLimit(s.Pod); limited || s.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	if s.Sandbox == nil || s.Ready() {
		return false
	}
	return slices.ContainsFunc(s.Containers, func(c *Container) bool { return c.Newest != nil })
}

// lastEnd returns when the last initial or regular container ended.
func (s *State) lastEnd() time.Time {
	var last time.Time
	for _, c := range s.Of(podspec.Initial, podspec.Regular) {
		if at := c.EndedAt(); c.Newest.Exited() && at.After(last) {
			last = at
		}
	}
	return last
}
