package containerv1

import "strings"

// volumePrefix begins the name of a Share or a Block that is a named volume of the engine's. Paths
// begin with a slash.
const volumePrefix = "volume:"

// VolumeName is what a Share or a Block is called that is a named volume. The inverse is VolumeOf.
func VolumeName(volume string) string { return volumePrefix + volume }

// VolumeOf returns the named volume that a Share or a Block of that name is, false for one that is a
// path.
func VolumeOf(name string) (volume string, ok bool) { return strings.CutPrefix(name, volumePrefix) }
