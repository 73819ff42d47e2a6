// Package annotations names the annotations that are reserved to Bulkhead.
package annotations

import "strings"

// Prefix is that of every reserved annotation. A user's with it are refused.
const Prefix = "io.bulkhead.internal/"

// Started is when the pod began, in RFC 3339: its sandboxes may be replaced. Package pod
// notes it on each sandbox and reads it back.
const Started = Prefix + "started"

// Cache is the beginning of a user's annotations: followed by the name of a volume that is a
// directory of the host or a shared volume, it says what the pod's guest may remember of that,
// "auto", "none" or "always" (package share).
const Cache = "io.bulkhead.cache/"

// Device is the beginning of a user's annotations: followed by the name of a hostPath of type
// BlockDevice, it says what containers that have it among their volumeDevices may do with it, some
// of "rwm".
const Device = "io.bulkhead.device/"

// Copy is the beginning of a user's annotations: followed by the name of a persistentVolumeClaim it says
// "image" if the volume, while it is empty, gets what the image has where a container mounts it.
const Copy = "io.bulkhead.copy/"

// User is the beginning of a user's annotations: followed by the name of a container it says whom that runs as, NAME or
// NAME:GROUP of its image, or a number in place of either. A Pod has fields for numbers alone.
const User = "io.bulkhead.user/"

// Ulimits is the beginning of a user's annotations: followed by the name of a container it says what its processes may
// have, in the form of package ulimit: "nofile=1024:2048 core=0".
const Ulimits = "io.bulkhead.ulimits/"

// CopyImage is the value of such an annotation.
const CopyImage = "image"

// Internal tells whether key is reserved.
func Internal(key string) bool { return strings.HasPrefix(key, Prefix) }
