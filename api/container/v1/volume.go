package containerv1

import "strings"

// volumePrefix begins the name of a Share or a Block that is a named volume. Paths begin with a slash.
const volumePrefix = "volume:"

// VolumeName returns the name of a Share or a Block for a named volume. VolumeOf is its inverse.
func VolumeName(volume string) string { return volumePrefix + volume }

// VolumeOf returns the named volume of a Share's or a Block's name. It returns false for a path.
func VolumeOf(name string) (volume string, ok bool) { return strings.CutPrefix(name, volumePrefix) }
