package oci

import (
	"fmt"
	"math"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The limits of open files. The soft limit is small, because some programs close or count all possible descriptors. The
// hard limit is the kernel's, for programs that raise their own.
const (
	softFiles = 1024
	hardFiles = 1 << 20
)

// MaxFiles is the largest possible limit of open files in a guest.
const MaxFiles = hardFiles

// DefaultRlimits returns the default limits of a container. The cgroup bounds its processes, because the kernel's limit would
// count all of a user's processes in the VM together.
func DefaultRlimits() []specs.POSIXRlimit {
	return []specs.POSIXRlimit{
		{Type: "RLIMIT_NOFILE", Soft: softFiles, Hard: hardFiles},
		{Type: "RLIMIT_NPROC", Soft: math.MaxUint64, Hard: math.MaxUint64},
	}
}

// SetRlimits replaces the limits of the given types, such as RLIMIT_NOFILE, and keeps the others. Errors match
// ErrInvalid.
func SetRlimits(p *specs.Process, limits []specs.POSIXRlimit) error {
	for _, limit := range limits {
		switch {
		case !KnownRlimit(limit.Type):
			return fmt.Errorf("%w: resource limit %.32q is not one of %v", ErrInvalid, limit.Type, rlimitTypes)
		case limit.Soft > limit.Hard:
			return fmt.Errorf("%w: %s: the soft limit %d is more than the hard limit %d", ErrInvalid, limit.Type, limit.Soft, limit.Hard)
		case limit.Type == "RLIMIT_NOFILE" && limit.Hard > hardFiles:
			return fmt.Errorf("%w: %s: %d is more than %d", ErrInvalid, limit.Type, limit.Hard, hardFiles)
		}
		same := func(of specs.POSIXRlimit) bool { return of.Type == limit.Type }
		p.Rlimits = append(slices.DeleteFunc(slices.Clone(p.Rlimits), same), limit)
	}
	return nil
}

// KnownRlimit reports whether the kernel has such a limit, as RLIMIT_NOFILE.
func KnownRlimit(name string) bool { return slices.Contains(rlimitTypes, name) }

var rlimitTypes = []string{
	"RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_LOCKS", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE",
	"RLIMIT_NICE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_RSS", "RLIMIT_RTPRIO", "RLIMIT_RTTIME", "RLIMIT_SIGPENDING", "RLIMIT_STACK",
}
