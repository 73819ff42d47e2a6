package preemption

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/node/eviction"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// choose are the pods without which nothing is lacking, as few as will do; enough is false where all of them are not enough.
// Critical pods are never among them.
func choose(lacks corev1.ResourceList, pods []*corev1.Pod, requests func(*corev1.Pod) corev1.ResourceList) (
	victims []*corev1.Pod, enough bool,
) {
	lacks = lacks.DeepCopy()
	for _, p := range order(pods) {
		if has := requests(p); helps(lacks, has) {
			victims = append(victims, p)
			change(lacks, has, -1)
		}
	}
	if lacking(lacks) {
		return nil, false
	}
	for i := len(victims) - 1; i >= 0; i-- { // one that came later may do for those before it
		has := requests(victims[i])
		if change(lacks, has, 1); lacking(lacks) {
			change(lacks, has, -1)
			continue
		}
		victims = slices.Delete(victims, i, i+1)
	}
	return victims, true
}

// order are the pods that may be ended, those first that are missed the least: by priority, quality of service, and age.
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

// helps tells whether a pod has some of what is lacking.
func helps(lacks, has corev1.ResourceList) bool {
	for name, q := range lacks {
		if own := has[name]; q.Sign() > 0 && own.Sign() > 0 {
			return true
		}
	}
	return false
}

// change adds what a pod has to what is lacking, or takes it off it.
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
