package eviction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is a measured value of a host, with a kubelet's name.
type Signal string

// The signals. Images are on the same file system as the node's disks, so the signals of imagefs measure that file
// system with thresholds of their own.
const (
	MemoryAvailable   Signal = "memory.available"
	NodefsAvailable   Signal = "nodefs.available"
	NodefsInodesFree  Signal = "nodefs.inodesFree"
	ImagefsAvailable  Signal = "imagefs.available"
	ImagefsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

// of maps a signal to its resource and to the condition of the node.
var of = map[Signal]struct {
	resource  corev1.ResourceName
	condition corev1.NodeConditionType
}{
	MemoryAvailable:   {corev1.ResourceMemory, corev1.NodeMemoryPressure},
	NodefsAvailable:   {corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure},
	NodefsInodesFree:  {"inodes", corev1.NodeDiskPressure},
	ImagefsAvailable:  {corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure},
	ImagefsInodesFree: {"inodes", corev1.NodeDiskPressure},
	PIDAvailable:      {"pids", corev1.NodePIDPressure},
}

// Threshold is the lower bound of a signal: Quantity, or Percent of the total.
type Threshold struct {
	Signal   Signal
	Quantity *resource.Quantity // nil if Percent is set
	Percent  float64
}

// Parse parses thresholds as SIGNAL<QUANTITY or SIGNAL<PERCENT%.
func Parse(texts []string) (out []Threshold, err error) {
	for _, text := range texts {
		name, amount, _ := strings.Cut(text, "<")
		t := Threshold{Signal: Signal(name)}
		percent, isPercent := strings.CutSuffix(amount, "%")
		ok := false
		if isPercent {
			t.Percent, err = strconv.ParseFloat(percent, 64)
			ok = err == nil && t.Percent >= 0 && t.Percent < 100
		} else if q, err := resource.ParseQuantity(amount); err == nil && q.Sign() >= 0 {
			t.Quantity, ok = &q, true
		}
		if _, known := of[t.Signal]; !known || !ok {
			return nil, fmt.Errorf("eviction-hard %q must be SIGNAL<QUANTITY, such as memory.available<100Mi or nodefs.available<10%%", text)
		}
		if slices.ContainsFunc(out, func(other Threshold) bool { return other.Signal == t.Signal }) {
			return nil, fmt.Errorf("eviction-hard %q: %s is set twice", text, t.Signal)
		}
		out = append(out, t)
	}
	return out, nil
}

// least returns the threshold as a quantity of the total.
func (t Threshold) least(all uint64) uint64 {
	if t.Quantity != nil {
		return uint64(t.Quantity.Value())
	}
	return uint64(float64(all) * t.Percent / 100)
}

// Withheld returns the resources of a host that thresholds keep from pods, because a pod that used them would be
// evicted. As in a kubelet, these are memory and the pods' disk.
func Withheld(thresholds []Threshold, all corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, t := range thresholds {
		if t.Signal != MemoryAvailable && t.Signal != NodefsAvailable {
			continue
		}
		name := of[t.Signal].resource
		has := all[name]
		out[name] = *resource.NewQuantity(int64(t.least(uint64(has.Value()))), resource.BinarySI)
	}
	return out
}

// level returns the total and the free quantity of a signal. The total is 0 if it was not measured.
func (h Host) level(s Signal) (all, left uint64) {
	switch s {
	case MemoryAvailable:
		return h.Memory.Total, h.Memory.Available
	case NodefsAvailable, ImagefsAvailable:
		return h.Disk.Total, h.Disk.Available
	case NodefsInodesFree, ImagefsInodesFree:
		return h.Disk.Inodes, h.Disk.FreeInodes
	case PIDAvailable:
		return h.PIDs.Total, h.PIDs.Available
	}
	return 0, 0
}

// crossed returns the thresholds that a host has fallen below, memory first.
func crossed(thresholds []Threshold, h Host) (out []Threshold) {
	for _, t := range thresholds {
		if all, left := h.level(t.Signal); all > 0 && left < t.least(all) {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Threshold) int {
		return rankOf(a.Signal) - rankOf(b.Signal)
	})
	return out
}

func rankOf(s Signal) int {
	if s == MemoryAvailable {
		return 0
	}
	return 1
}
