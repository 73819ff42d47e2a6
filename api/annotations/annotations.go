// Package annotations names the annotations that are reserved to Bulkhead.
package annotations

import "strings"

// Prefix is the prefix of all reserved annotations. Users may not set them.
const Prefix = "io.bulkhead.internal/"

// Started is the start time of the pod in RFC 3339, because its sandboxes may be replaced. Package pod sets it on
// each sandbox and reads it back.
const Started = Prefix + "started"

// Cache is the prefix of a user's annotation, followed by the name of a volume that is a directory of the host or a
// shared volume. The value says what the pod's guest may cache of it: "auto", "none" or "always" (package share).
const Cache = "io.bulkhead.cache/"

// Device is the prefix of a user's annotation, followed by the name of a hostPath of type BlockDevice. The value is
// the access of containers with the volume in volumeDevices: some of "rwm".
const Device = "io.bulkhead.device/"

// Copy is the prefix of a user's annotation, followed by the name of a persistentVolumeClaim. With the value
// "image", an empty volume is filled from the image at its mount point.
const Copy = "io.bulkhead.copy/"

// User is the prefix of a user's annotation, followed by the name of a container. The value is its user, NAME or
// NAME:GROUP of its image; each may be a number. A Pod has fields for numbers only.
const User = "io.bulkhead.user/"

// Ulimits is the prefix of a user's annotation, followed by the name of a container. The value sets the limits of
// its processes in the form of package ulimit: "nofile=1024:2048 core=0".
const Ulimits = "io.bulkhead.ulimits/"

// CopyImage is the value of the Copy annotation.
const CopyImage = "image"

// Internal reports whether key is reserved.
func Internal(key string) bool { return strings.HasPrefix(key, Prefix) }
