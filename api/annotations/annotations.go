// Package annotations names the internal annotations of a pod sandbox: the
// choices that a Bulkhead engine understands and the CRI has no field for.
// They are set by Bulkhead's own doors only; a user's annotations with Prefix
// are refused before they reach the CRI.
package annotations

import (
	"strings"
)

// Prefix is that of every internal annotation.
const Prefix = "io.bulkhead.internal/"

// The internal annotations of a PodSandboxConfig.
const (
	Network  = Prefix + "network"  // "user", "none" or "host-loopback"; absent is the engine's default
	Template = Prefix + "template" // "off" boots cold; absent clones
	Accel    = Prefix + "accel"    // "kvm" or "tcg"; absent is the probed one

	// Started is when the pod began, in RFC 3339: its sandboxes may be replaced.
	Started = Prefix + "started"
	// PodLimits names those of the sandbox's limits, comma separated, that hold
	// for the pod as a whole and not only as the sum of its containers':
	// "memory", "cpu".
	PodLimits = Prefix + "pod-limits"
	// Unstated is "memory" where a container of the pod has no memory limit, so
	// that the sandbox's is not all that the pod may use.
	Unstated = Prefix + "unstated"
	// Scratch is how many bytes the pod may write to its scratch disk; absent is
	// the engine's default.
	Scratch = Prefix + "scratch"

	// Storage, of a ContainerConfig, is how many bytes the container's writable
	// layer may hold; absent is no limit of its own.
	Storage = Prefix + "storage"

	// EmptyDir followed by a volume's name holds that volume's options, comma
	// separated: "medium=Memory", "size=BYTES", "mode=OCTAL". Absent is an
	// unbounded directory on the scratch disk.
	EmptyDir = Prefix + "emptydir."
	// FSGroup is the group that the volumes belong to.
	FSGroup = Prefix + "fsgroup"
)

// Internal tells whether key is reserved to Bulkhead's doors.
func Internal(key string) bool { return strings.HasPrefix(key, Prefix) }
