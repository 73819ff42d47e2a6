// Package annotations names the internal annotations of a pod sandbox: the
// choices that a Bulkhead engine understands and the CRI has no field for.
// They are set by Bulkhead's own doors only; a user's annotations with Prefix
// are refused before they reach the CRI.
package annotations

import "strings"

// Prefix is that of every internal annotation.
const Prefix = "io.bulkhead.internal/"

// The internal annotations of a PodSandboxConfig.
const (
	Network  = Prefix + "network"  // "user", "none" or "host-loopback"; absent is the engine's default
	Template = Prefix + "template" // "off" boots cold; absent clones
	Accel    = Prefix + "accel"    // "kvm" or "tcg"; absent is the probed one

	// Started is when the pod began, in RFC 3339: its sandboxes may be replaced.
	Started = Prefix + "started"

	// EmptyDir followed by a volume's name holds that volume's options, comma
	// separated: "medium=Memory", "size=BYTES". Absent is an unbounded
	// directory on the scratch disk.
	EmptyDir = Prefix + "emptydir."
)

// EmptyDirPath is the last part but one of a CRI mount's host path when the
// mount is an emptyDir volume; the last one is the volume's name. It is the
// name of the kubelet's own directory.
const EmptyDirPath = "kubernetes.io~empty-dir"

// Internal tells whether key is reserved to Bulkhead's doors.
func Internal(key string) bool { return strings.HasPrefix(key, Prefix) }
