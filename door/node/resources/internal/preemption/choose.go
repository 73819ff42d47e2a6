package preemption

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/node/resources/internal/eviction"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// choose returns the fewest pods that free the lacking resources when they end. It returns enough = false if all of
// them are too few. It never chooses critical pods.
func choose(lacks corev1.ResourceList, pods []*corev1.Pod, requests func(*corev1.Pod) corev1.ResourceList) (
	victims []*corev1.Pod, enough bool,
) {
	lacks = lacks.DeepCopy()
	for _, p := range order(pods) {
		if has := requests(p); holdsAny(lacks, has) {
			victims = append(victims, p)
			change(lacks, has, -1)
		}
	}
	if lacking(lacks) {
		return nil, false
	}
	for i := len(victims) - 1; i >= 0; i-- { // a later victim may make an earlier one unnecessary
		has := requests(victims[i])
		if change(lacks, has, 1); lacking(lacks) {
			change(lacks, has, -1)
			continue
		}
		victims = slices.Delete(victims, i, i+1)
	}
	return victims, true
}

// order returns the pods that may be ended, least important first: by priority, then quality of service, then age.
func order(pods []*corev1.Pod) []*corev1.Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), eviction.Critical)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(eviction.Priority(a), eviction.Priority(b)), cmp.Compare(quality(a), quality(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	return pods
}

func quality(p *corev1.Pod) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}, podspec.QOS(p))
}

func lacking(lacks corev1.ResourceList) bool {
	for _, q := range lacks {
		if q.Sign() > 0 {
			return true
		}
	}
	return false
}

// holdsAny reports whether a pod holds some of the lacking resources.
func holdsAny(lacks, has corev1.ResourceList) bool {
	for name, q := range lacks {
		if own := has[name]; q.Sign() > 0 && own.Sign() > 0 {
			return true
		}
	}
	return false
}

// change adds a pod's resources to the lacking ones, or subtracts them if sign is negative.
func change(lacks, has corev1.ResourceList, sign int) {
	for name, q := range lacks {
		if sign > 0 {
			q.Add(has[name])
		} else {
			q.Sub(has[name])
		}
		lacks[name] = q
	}
}
